import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.StringJoiner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * Threads that wait for a mutex of Curator. For each empty line that it reads, each sleeps under the mutex, and a line of hand-overs is
 * printed, in ns. For a line `WITNESS LOG` each runs that command under the mutex (witness.c), and an empty line is printed.
 */
public class CuratorCrowd {
    static final String PATH = "/curator";

    /** Arguments: hosts, number of waiters, and the time for which each holds the lock, in us. */
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] witness = line.isEmpty() ? new String[0] : line.split(" ");
            System.out.println(round(client, Integer.parseInt(args[1]), Long.parseLong(args[2]), witness));
        }
        System.exit(0);
    }

    static void stay(long time, String[] witness, int label) throws Exception {
        if (witness.length == 0) {
            Thread.sleep(time / 1000, (int) (time % 1000) * 1000);
        } else {
            String[] words = {witness[0], witness[1], Integer.toString(label), Long.toString(time)};
            new ProcessBuilder(words).start().waitFor();
        }
    }

    static String round(CuratorFramework client, int waiters, long time, String[] witness) throws Exception {
        long[][] stays = new long[waiters + 1][];
        InterProcessMutex holder = new InterProcessMutex(client, PATH);
        holder.acquire();
        Thread[] threads = new Thread[waiters];
        for (int n = 0; n < waiters; n++) {
            int label = n + 1;
            threads[n] = new Thread(() -> {
                InterProcessMutex mutex = new InterProcessMutex(client, PATH);
                try {
                    mutex.acquire();
                    long begin = System.nanoTime();
                    stay(time, witness, label);
                    stays[label] = new long[] {begin, System.nanoTime()};
                    mutex.release();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            threads[n].start();
            while (client.getChildren().forPath(PATH).size() < n + 2) {
                Thread.sleep(1);
            }
        }
        stay(0, witness, 0);
        stays[0] = new long[] {0, System.nanoTime()};
        holder.release();
        for (Thread thread : threads) {
            thread.join();
        }
        Arrays.sort(stays, (one, other) -> Long.compare(one[1], other[1]));
        StringJoiner gaps = new StringJoiner(" ");
        for (int n = 1; n < stays.length && witness.length == 0; n++) {
            gaps.add(Long.toString(stays[n][0] - stays[n - 1][1]));
        }
        return gaps.toString();
    }
}

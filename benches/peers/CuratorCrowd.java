import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.StringJoiner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Threads that wait for a mutex of Curator: a line of hand-overs, in ns, for each line that it reads. */
public class CuratorCrowd {
    static final String PATH = "/curator";

    /** Arguments: hosts, number of waiters, and the time for which each holds the lock, in us. */
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            System.out.println(round(client, Integer.parseInt(args[1]), Long.parseLong(args[2])));
        }
        System.exit(0);
    }

    static String round(CuratorFramework client, int waiters, long stay) throws Exception {
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
                    Thread.sleep(stay / 1000, (int) (stay % 1000) * 1000);
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
        stays[0] = new long[] {0, System.nanoTime()};
        holder.release();
        for (Thread thread : threads) {
            thread.join();
        }
        Arrays.sort(stays, (one, other) -> Long.compare(one[1], other[1]));
        StringJoiner gaps = new StringJoiner(" ");
        for (int n = 1; n < stays.length; n++) {
            gaps.add(Long.toString(stays[n][0] - stays[n - 1][1]));
        }
        return gaps.toString();
    }
}

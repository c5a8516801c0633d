import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

/** A client of Curator that tests drive, as kazoo_client.py is one of kazoo. */
public class Curator {
    public static void main(String[] args) throws Exception {
        int timeout = (int) (Double.parseDouble(args[1]) * 1000);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], timeout, 15000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        Map<String, InterProcessLock> locks = new HashMap<>();
        Map<String, Runnable> ends = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                String told = "";
                switch (words[0]) {
                    case "lock" -> take(client, words[1], words[2], words[3], ends);
                    case "unlock" -> ends.remove(words[1]).run();
                    case "revoke" -> Revoker.attemptRevoke(client, words[1]);
                    default -> throw new IllegalArgumentException(words[0]);
                }
                System.out.println("answer " + told);
            } catch (Exception error) {
                System.out.println("failed " + error);
            }
        }
        System.exit(0);
    }

    /** Takes the lock in a thread of its own, which alone may give it back. */
    static void take(CuratorFramework client, String name, String kind, String path,
            Map<String, Runnable> ends) {
        InterProcessLock lock = switch (kind) {
            case "Mutex" -> new InterProcessMutex(client, path);
            case "Read" -> new InterProcessReadWriteLock(client, path).readLock();
            default -> new InterProcessReadWriteLock(client, path).writeLock();
        };
        java.util.concurrent.Semaphore end = new java.util.concurrent.Semaphore(0);
        ends.put(name, end::release);
        Thread thread = new Thread(() -> {
            try {
                lock.acquire();
                System.out.println("held " + name);
                end.acquire();
                lock.release();
                System.out.println("released " + name);
            } catch (Exception error) {
                System.out.println("failed " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}

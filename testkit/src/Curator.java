import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
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

    /** Something that is taken, and gives what gives it back. */
    interface Taking {
        AutoCloseable take() throws Exception;
    }

    static Taking of(InterProcessLock lock) {
        return () -> {
            lock.acquire();
            return lock::release;
        };
    }

    /** Takes the lock in a thread of its own, which alone may give it back. */
    static void take(CuratorFramework client, String name, String kind, String path,
            Map<String, Runnable> ends) {
        Taking lock = switch (kind) {
            case "Mutex" -> of(new InterProcessMutex(client, path));
            case "Read" -> of(new InterProcessReadWriteLock(client, path).readLock());
            case "Write" -> of(new InterProcessReadWriteLock(client, path).writeLock());
            default -> {
                int slots = Integer.parseInt(kind.substring("Slots".length()));
                InterProcessSemaphoreV2 semaphore =
                        new InterProcessSemaphoreV2(client, path, slots);
                yield () -> {
                    Lease lease = semaphore.acquire();
                    return () -> semaphore.returnLease(lease);
                };
            }
        };
        java.util.concurrent.Semaphore end = new java.util.concurrent.Semaphore(0);
        ends.put(name, end::release);
        Thread thread = new Thread(() -> {
            try {
                AutoCloseable taken = lock.take();
                System.out.println("held " + name);
                end.acquire();
                taken.close();
                System.out.println("released " + name);
            } catch (Exception error) {
                System.out.println("failed " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}

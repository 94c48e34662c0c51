// Compact lets Kafka's own log cleaner compact partition directories, one after the other. It is in the cleaner's package, where
// one may ask what it would clean.
//
// Arguments, for each directory: "path now firstDirty logStart mapBytes". The topic's configuration is in path.properties. A line of
// output each: path, first dirty and first uncleanable offset, clean and cleanable bytes, and the first offset that is dirty afterwards
// (-1 if there was nothing to clean).
package org.apache.kafka.storage.internals.log;

import java.io.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Compact {
    static Time at(long now) {
        return new Time() {
            @Override public long milliseconds() { return now; }
            @Override public long nanoseconds() { return now * 1_000_000; }
            @Override public void sleep(long ms) { }
        };
    }

    static final ScheduledThreadPoolExecutor idle = new ScheduledThreadPoolExecutor(0);

    static final Scheduler never = new Scheduler() {
        @Override public void startup() { }
        @Override public void shutdown() { }
        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return idle.schedule(() -> { }, 365, TimeUnit.DAYS); // UnifiedLog cancels what it got
        }
        @Override public void resizeThreadPool(int n) { }
    };

    public static void main(String[] argv) throws Exception {
        for (String a : argv) {
            String[] f = a.split(" ");
            clean(f[0], Long.parseLong(f[1]), Long.parseLong(f[2]), Long.parseLong(f[3]), Integer.parseInt(f[4]));
        }
    }

    static void clean(String path, long now, long firstDirty, long start, int mapBytes) throws Exception {
        Properties p = new Properties();
        try (Reader r = new FileReader(path + ".properties")) { p.load(r); }
        LogConfig config = new LogConfig(p);
        Time time = at(now);
        UnifiedLog log = UnifiedLog.create(new File(path), config, start, Long.MAX_VALUE, never, new BrokerTopicStats(), time, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        LogCleanerManager.OffsetsToClean o = LogCleanerManager.cleanableOffsets(log, firstDirty < 0 ? Optional.empty() : Optional.of(firstDirty), now);
        LogToClean l = new LogToClean(log, o.firstDirtyOffset(), o.firstUncleanableDirtyOffset(), false);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 65536, 1 << 20, 0.9, new Throttler(Double.MAX_VALUE, 300, "x", "x", time), time, tp -> { });
        long end = -1;
        if (l.cleanableBytes() > 0) end = cleaner.doClean(l, now).getKey();
        System.out.println(path + " " + l.firstDirtyOffset() + " " + l.firstUncleanableOffset() + " " + l.cleanBytes() + " " + l.cleanableBytes() + " " + end);
        log.close();
    }
}

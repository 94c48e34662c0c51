// ToolHost runs Java programs, Kafka's own tools above all, one after the other inside one warm JVM: a tool's own start costs
// a second of CPU, here it costs milliseconds.
//
// Standard input, one JSON object a line:  {"class": main class, "argv": […], "stdin": text or null, "timeout": seconds}
// Standard output, one JSON object a line: {"exit": status, "stdout": text, "stderr": text}; exit 124: not done in time.
//
// A program that calls System.exit is stopped by a SecurityManager, one that uses Kafka's Exit by its procedures; shutdown hooks
// that it registered with Kafka's Exit run when it ends. What the tools log (log4j) goes to this JVM's standard error, not to theirs.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.common.utils.internals.Exit;

public class ToolHost {
    static final class Left extends Error {
        Left() { super("left", null, false, false); }
    }

    static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        final CountDownLatch done = new CountDownLatch(1);
        final AtomicInteger code = new AtomicInteger(-1);
        final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        volatile String stdout = "", stderr = ""; // as they were when it left: some tools catch Left and print it

        void leave(int c) {
            if (!code.compareAndSet(-1, c)) return;
            for (Runnable h : hooks) try { h.run(); } catch (Throwable t) { }
            System.out.flush();
            System.err.flush();
            stdout = out.toString(StandardCharsets.UTF_8);
            stderr = err.toString(StandardCharsets.UTF_8);
            done.countDown();
        }
    }

    static volatile Run current;

    @SuppressWarnings("removal")
    static void watchExit() { // argparse4j calls System.exit itself
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkExit(int code) {
                Run r = current;
                if (r != null) { r.leave(code); throw new Left(); }
            }
            @Override public void checkPermission(java.security.Permission p) { }
            @Override public void checkPermission(java.security.Permission p, Object o) { }
        });
    }

    static Throwable cause(Throwable e) {
        return e instanceof InvocationTargetException && e.getCause() != null ? e.getCause() : e;
    }

    public static void main(String[] a) throws Exception {
        org.slf4j.LoggerFactory.getLogger(ToolHost.class).debug("log4j takes the standard error of now, not that of the first tool");
        watchExit();
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            JsonNode q = json.readTree(line);
            Run run = new Run();
            current = run;
            System.setOut(new PrintStream(run.out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(run.err, true, StandardCharsets.UTF_8));
            String stdin = q.path("stdin").isTextual() ? q.path("stdin").asText() : "";
            System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
            Exit.setExitProcedure((code, message) -> { run.leave(code); throw new Left(); });
            Exit.setHaltProcedure((code, message) -> { run.leave(code); throw new Left(); });
            Exit.setShutdownHookAdder((name, hook) -> run.hooks.add(hook));
            List<String> argv = new ArrayList<>();
            for (JsonNode x : q.get("argv")) argv.add(x.asText());
            Thread t = new Thread(() -> {
                try {
                    Method m = Class.forName(q.get("class").asText()).getMethod("main", String[].class);
                    m.invoke(null, (Object) argv.toArray(new String[0]));
                    run.leave(0);
                } catch (Throwable e) {
                    Throwable c = cause(e);
                    if (c instanceof Left) return;
                    System.err.print("Exception in thread \"main\" ");
                    c.printStackTrace();
                    run.leave(1);
                }
            }, "main");
            t.setDaemon(true);
            t.start();
            if (!run.done.await(q.path("timeout").asInt(60), TimeUnit.SECONDS)) {
                run.leave(124);
                t.interrupt();
            }
            t.join(300);
            current = null;
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("exit", run.code.get());
            o.put("stdout", run.stdout);
            o.put("stderr", run.stderr);
            answers.println(json.writeValueAsString(o));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}

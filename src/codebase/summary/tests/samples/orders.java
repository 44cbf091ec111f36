/* Licence. */
/** What this package is for. */
@NonNullApi
package com.example.app;

import java.util.*;
import static java.lang.Math.max;
import java.io.IOException;

/**
 * Keeps orders. And more.
 * @param <T> what is kept
 */
@Service(value = "orders {", names = {"a", "b"})
@SuppressWarnings("unchecked")
public abstract sealed class Orders<T extends Comparable<T> & java.io.Serializable>
        extends Base<T>
        implements Store<T>, AutoCloseable
        permits Orders.Local {

    public static final int MAX = 10, MIN = 1;
    static final Map<String, List<int[]>> TABLE = new HashMap<>() {{
        put("class Fake {", List.of());
    }};
    private final T[] items, more[];
    protected volatile String text = "public void fake() {";

    /** Makes one. */
    protected Orders(@Nullable T first, int... rest) throws IOException, IllegalStateException {
        super(first);
    }

    static { System.out.println("x"); }

    @Override
    @Transactional(isolation = Isolation.DEFAULT,
                   readOnly = true)
    public <R extends T> Optional<R>
            find(final String name,
                 Function<? super T, ? extends R> map)
            throws IOException {
        Runnable r = new Runnable() {
            @Override public void run() { }
        };
        class LocalOne { void inner() { } }
        return null;
    }

    abstract int count();

    private native void hidden();

    /** Nested. */
    static final class Local extends Orders<String> { int a; record Pair<A, B>(A a, B b) implements Cloneable { Pair { } } }

    enum Color implements HasCode {
        /** Red. */
        RED("r") { @Override int code() { return 1; } },
        @Deprecated GREEN("g"), BLUE;
        private final String text;
        Color(String... text) { this.text = text[0]; }
        abstract int code();
    }

    public @interface Ann {
        String value() default "x";
        int[] numbers() default {1, 2};
        int LIMIT = 5;
    }

    private interface Secret { void go(); default int x() { return 1; } private void y() { } }
}

interface Store<T> { T get(String key); }

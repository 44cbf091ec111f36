package bodies;

import java.util.Map;

class Bodies<T extends Comparable<T>> extends Base implements Used1 {
    static final Map<String, Integer> VALUES = new UsedMap<>() {{
        put("a", 1);
        put("b", 2);
    }};

    static {
        String hidden = "hidden(}" + '}' + """
            } \""" { hidden(
            """;
    }

    {
        usedInInitializer(1, 2, 3, 4, 5, 6, 7, 8, 9);
    }

    @Named({"a", "b"})
    <R extends T> R find(final int a,
            @Param("x") String... b) throws IOException, UsedException {
        class Local {
            void inner() {}
        }
        Runnable runnable = () -> { usedInLambda(); };
        return new Object() { int x; }.x;
    }

    enum Kind {
        ONE {
            void g() { somethingLongEnoughToMatter(1, 2, 3, 4); }
        },
        TWO(2) {
            int kept() { return usedInConstant(1, 2, 3, 4, 5, 6); }
        };

        Kind(int... a) {
            this.a = a; // a comment with a } and a ' in it
        }
    }

    record Point(int x, int y) implements Used2 {
        Point {
            check(x);
        }

        int sum() { return x + y + usedInRecord(x, y, "not a }"); }
    }

    @interface Named {
        String[] value() default {};

        int limit = 3;
    }

    /**
     * Documented: what is said in a comment is read from the text, whatever { or ' is in it.
     */
    abstract void none();

    public int[] array = {1, 2, 3};

    Bodies(int a) {
        super(a);
        this.<T>usedGeneric(a, b, c, d, e, f, g, h);
    }
}

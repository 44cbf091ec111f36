#include <stdio.h>

struct item { int a; };

static const struct item items[] = {
    { .a = 1 },
    { .a = (2) },
};

struct item *make(int a) {
    if (a == '{') {
        used_call(a, "hidden(}", /* hidden( } */ 1);
    }
    return NULL;
}

static int
twice(int a)
{
#if A
    if (a) { used_branch(a); }
#else
    used_other(a);
#endif
    return a * 2;
}

int old(a)
    int a;
{
    return used_in_old_style(a, a, a, a, a, a, a);
}

#define BEGIN do {
#define END } while (0)

typedef struct __attribute__((packed)) {
    int x;
    int (*compare)(int, int);
} packed_t;

enum { A = sizeof(int), B };

int (*getter(void))(int) {
    return used_getter(1000, 2, 3, 4, 5, 6, 7, 8);
}

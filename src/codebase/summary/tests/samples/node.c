/* Licence text.
 * All rights. */
#include <stdio.h>
#include "util/list.h"
#ifndef FOO_H
#define FOO_H

#define MAX_SIZE 1024
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define LONG_MACRO(x) \
    do { \
        if (x) { return; } \
    } while (0)

/* A node. Linked. */
typedef struct node {
    int value, other;
    struct node *next;      /* next one */
    union { int a; long b; };
    struct { char *name; } inner;
    int (*compare)(const void *, const void *);
    unsigned flags : 3;
} node_t, *node_ptr;

typedef struct { double x, y; } point;
typedef unsigned long ulong_t;
typedef int (*callback)(int, void *);
typedef enum { RED, GREEN = 2, BLUE } color;
enum mode { ON, OFF };
enum { ANON_A = 1, ANON_B };
struct forward;

extern int global_count;
static const char *names[] = { "a {", "b }" };
int a = 1, *b, c[3];
int (*handler)(int);

int prototype(int a, const char *b);
static inline void hidden(void);
char *(*getter(void))(int);

/**
 * @brief Adds two. Then more.
 */
int
add(int a,
    int b)
{
    const char *s = "int fake(void) {";
    return a + b;
}

static int twice(int x) { return x * 2; }

#ifdef _WIN32
void only_windows(void) {}
#else
void elsewhere(void) {
#if defined(DEBUG)
    if (1) {
#else
    if (2) {
#endif
        puts("x");
    }
}
#endif

__attribute__((noreturn)) void die(const char *fmt, ...) { for (;;); }

#ifdef __cplusplus
extern "C" {
#endif
int exported(void);
#ifdef __cplusplus
}
#endif
#endif

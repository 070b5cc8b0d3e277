/* Preloaded library that kills its process by SIGKILL at the n-th system call that changes files below a folder.
 * A call to write is killed after half of its bytes, any other just before it. `KILL_BELOW` and `KILL_AT` in the
 * environment, or `kill_at`, give the folder and n; with n = 0 the calls are only counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[PATH_MAX];
static long at = 0, count = 0;
static volatile int armed = 0;

long kill_count(void) { return count; }

void kill_at(const char *folder, long n) {
    snprintf(below, sizeof below, "%s/", folder);
    at = n;
    count = 0;
    armed = 1;
}

__attribute__((constructor)) static void from_environment(void) {
    const char *folder = getenv("KILL_BELOW"), *n = getenv("KILL_AT");
    if (folder && n) kill_at(folder, atol(n));
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int is_below(int folder, const char *path) {
    char full[2 * PATH_MAX], name[64];
    ssize_t length;
    if (!armed) return 0;
    if (path && path[0] == '/') {
        snprintf(full, sizeof full, "%s", path);
    } else {
        if (folder == AT_FDCWD) {
            if (!getcwd(full, PATH_MAX)) return 0;
        } else {
            snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
            length = readlink(name, full, PATH_MAX - 1);
            if (length < 0) return 0;
            full[length] = 0;
        }
        if (path) {
            strcat(full, "/");
            strncat(full, path, PATH_MAX - 1);
        }
    }
    return strncmp(full, below, strlen(below)) == 0;
}

static int is_due(int folder, const char *path) { return is_below(folder, path) && ++count == at; }

#define ORIGINAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define BEFORE(folder, path) \
    if (is_due(folder, path)) die()

#define OPEN(name, parameters, arguments, folder)                                 \
    int name parameters {                                                         \
        mode_t mode = 0;                                                          \
        if (flags & (O_CREAT | O_TMPFILE)) {                                      \
            va_list more;                                                         \
            va_start(more, flags);                                                \
            mode = va_arg(more, mode_t);                                          \
            va_end(more);                                                         \
        }                                                                         \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) BEFORE(folder, path); \
        return ORIGINAL(name) arguments;                                          \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)

ssize_t write(int file, const void *content, size_t length) {
    if (is_due(file, NULL)) {
        ORIGINAL(write)(file, content, length / 2);
        die();
    }
    return ORIGINAL(write)(file, content, length);
}

#define PWRITE(name)                                                              \
    ssize_t name(int file, const void *content, size_t length, off_t place) {     \
        if (is_due(file, NULL)) {                                                 \
            ORIGINAL(name)(file, content, length / 2, place);                     \
            die();                                                                \
        }                                                                         \
        return ORIGINAL(name)(file, content, length, place);                      \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define ONE(type, name, parameters, arguments, folder, path)                      \
    type name parameters {                                                        \
        BEFORE(folder, path);                                                     \
        return ORIGINAL(name) arguments;                                          \
    }
ONE(ssize_t, writev, (int f, const struct iovec *v, int n), (f, v, n), f, NULL)
ONE(ssize_t, sendfile, (int to, int from, off_t *o, size_t n), (to, from, o, n), to, NULL)
ONE(ssize_t, sendfile64, (int to, int from, off64_t *o, size_t n), (to, from, o, n), to, NULL)
ONE(ssize_t, copy_file_range, (int from, off64_t *a, int to, off64_t *b, size_t n, unsigned int flags),
    (from, a, to, b, n, flags), to, NULL)
ONE(int, fsync, (int f), (f), f, NULL)
ONE(int, fdatasync, (int f), (f), f, NULL)
ONE(int, ftruncate, (int f, off_t n), (f, n), f, NULL)
ONE(int, ftruncate64, (int f, off64_t n), (f, n), f, NULL)
ONE(int, unlink, (const char *p), (p), AT_FDCWD, p)
ONE(int, unlinkat, (int d, const char *p, int flags), (d, p, flags), d, p)
ONE(int, rmdir, (const char *p), (p), AT_FDCWD, p)
ONE(int, mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
ONE(int, mkdirat, (int d, const char *p, mode_t m), (d, p, m), d, p)
ONE(int, rename, (const char *a, const char *b), (a, b), AT_FDCWD, b)
ONE(int, renameat, (int c, const char *a, int d, const char *b), (c, a, d, b), d, b)
ONE(int, renameat2, (int c, const char *a, int d, const char *b, unsigned int flags), (c, a, d, b, flags), d, b)
ONE(int, symlink, (const char *a, const char *b), (a, b), AT_FDCWD, b)
ONE(int, link, (const char *a, const char *b), (a, b), AT_FDCWD, b)
ONE(int, chmod, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
ONE(int, fchmod, (int f, mode_t m), (f, m), f, NULL)

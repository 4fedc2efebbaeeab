/* Records what a process asks of the files below a directory: every change and every sync, in order.
 *
 * Preloaded (LD_PRELOAD) into a server. CUTS_ROOT is the directory, CUTS_TRACE the file that records
 * are appended to (see trace.py, which reads them). With CUTS_KILL_AFTER the process ends as by
 * kill -9 once so many records are written.
 *
 * A change is made and recorded under one lock, so the order of the records is the order of the
 * changes; its time is taken before it is made. A sync is two records, before and after, without the
 * lock in between. Its end has the time before the caller knows of it. So an answer that a client had
 * before a record's time was given without what that record says. Times are CLOCK_MONOTONIC, which
 * all processes of a machine share.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind {
    OPEN = 1, WRITE, ZEROS, RESIZE, ALLOCATE, RENAME, UNLINK, MKDIR, RMDIR, LINK,
    SYNC_BEGIN, SYNC_END, DUPLICATE, UNKNOWN
};

enum { CREATED = 1, IS_DIRECTORY = 2, WHOLE_FILE_SYSTEM = 4, FAILED = 8 };

struct record {
    uint64_t time;
    uint32_t kind;
    uint32_t flags;
    uint32_t process;
    uint32_t thread;
    int32_t fd;
    uint32_t path;   /* bytes of the path, which follows */
    uint32_t other;  /* bytes of a second path, which follows that */
    uint32_t number; /* of a sync: the same at its begin and its end */
    int64_t offset;
    uint64_t size;   /* bytes of data, which follow the paths of a WRITE */
};

#define FDS 65536
static unsigned char tracked[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size;
static int trace = -1;
static long left = -1; /* records to write before the process ends; -1: it does not */
static uint32_t syncs;

/* The C library's own function of a name, looked up once. */
static void *real(void **found, const char *name)
{
    if (!*found)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
}

#define REAL_OF(name) static void *real_##name;
#define CALL(name) ((__typeof__(&name)) real(&real_##name, #name))

REAL_OF(write) REAL_OF(writev) REAL_OF(close) REAL_OF(fsync) REAL_OF(fdatasync) REAL_OF(syncfs)

__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("CUTS_ROOT"), *file = getenv("CUTS_TRACE");
    const char *kill_after = getenv("CUTS_KILL_AFTER");
    int fd;
    if (!directory || !file || !realpath(directory, root))
        return;
    root_size = strlen(root);
    fd = (int) syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    trace = fcntl(fd, F_DUPFD_CLOEXEC, 1000); /* out of the way of those that the process sees */
    if (trace < 0)
        trace = fd;
    else
        CALL(close)(fd);
    if (kill_after)
        left = atol(kill_after);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static void put(struct record *r, const char *path, const char *other, const void *data)
{
    struct iovec parts[4];
    size_t all;
    r->process = (uint32_t) getpid();
    r->thread = (uint32_t) syscall(SYS_gettid);
    r->path = path ? (uint32_t) strlen(path) : 0;
    r->other = other ? (uint32_t) strlen(other) : 0;
    parts[0] = (struct iovec) {r, sizeof *r};
    parts[1] = (struct iovec) {(void *) path, r->path};
    parts[2] = (struct iovec) {(void *) other, r->other};
    parts[3] = (struct iovec) {(void *) data, r->kind == WRITE ? r->size : 0};
    all = sizeof *r + r->path + r->other + parts[3].iov_len;
    if (CALL(writev)(trace, parts, 4) != (ssize_t) all)
        abort(); /* a trace with a hole would prove nothing */
    if (left > 0 && --left == 0)
        raise(SIGKILL);
}

static int is_ours(int fd)
{
    return trace >= 0 && fd >= 0 && fd < FDS && tracked[fd];
}

/* The absolute path, if it is at the root or below it. The path itself need not exist. */
static const char *below(int dirfd, const char *path, char *out)
{
    char link[64], base[PATH_MAX];
    ssize_t n;
    if (trace < 0 || !path)
        return NULL;
    if (path[0] == '/')
        snprintf(out, PATH_MAX, "%s", path);
    else {
        if (dirfd == AT_FDCWD) {
            if (!getcwd(base, sizeof base))
                return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
            n = readlink(link, base, sizeof base - 1);
            if (n < 0)
                return NULL;
            base[n] = 0;
        }
        if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            return NULL;
    }
    if (strncmp(out, root, root_size) || (out[root_size] && out[root_size] != '/'))
        return NULL;
    return out;
}

static void unknown(const char *what)
{
    struct record r = {.kind = UNKNOWN, .fd = -1};
    pthread_mutex_lock(&lock);
    r.time = now();
    put(&r, what, NULL, NULL);
    pthread_mutex_unlock(&lock);
}

/* -- opening and closing ----------------------------------------------------------------------- */

REAL_OF(openat64) REAL_OF(fcntl64)

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    struct stat before, after;
    struct record r = {.kind = OPEN};
    const char *found = below(dirfd, path, full);
    int fd, was_there;
    if (!found) {
        fd = CALL(openat64)(dirfd, path, flags, mode);
        if (fd >= 0 && fd < FDS)
            tracked[fd] = 0;
        return fd;
    }
    if (flags & (O_SYNC | O_DSYNC))
        unknown("open with O_SYNC or O_DSYNC");
    if ((flags & O_TMPFILE) == O_TMPFILE)
        unknown("open with O_TMPFILE");
    pthread_mutex_lock(&lock);
    was_there = !lstat(found, &before);
    r.time = now();
    fd = CALL(openat64)(dirfd, path, flags, mode);
    if (fd >= 0) {
        if (fd >= FDS || fstat(fd, &after))
            abort();
        tracked[fd] = 1;
        r.fd = fd;
        r.flags = (was_there ? 0 : CREATED) | (S_ISDIR(after.st_mode) ? IS_DIRECTORY : 0);
        put(&r, found, NULL, NULL);
        if (was_there && (flags & O_TRUNC)) {
            struct record cut = {.kind = RESIZE, .fd = fd, .time = r.time};
            put(&cut, NULL, NULL, NULL);
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int close(int fd)
{
    int answer, ours = is_ours(fd);
    if (!ours)
        return CALL(close)(fd);
    pthread_mutex_lock(&lock);
    tracked[fd] = 0;
    answer = CALL(close)(fd);
    pthread_mutex_unlock(&lock);
    return answer;
}

/* It closes its descriptor without `close`: what has the number next, a socket perhaps, is not ours. */
REAL_OF(closedir)
int closedir(DIR *directory)
{
    int answer, fd = dirfd(directory);
    if (!is_ours(fd))
        return CALL(closedir)(directory);
    pthread_mutex_lock(&lock);
    tracked[fd] = 0;
    answer = CALL(closedir)(directory);
    pthread_mutex_unlock(&lock);
    return answer;
}

static int note_duplicate(int fd, int copy)
{
    struct record r = {.kind = DUPLICATE, .fd = fd, .offset = copy};
    if (copy >= 0) {
        pthread_mutex_lock(&lock);
        tracked[copy] = 1;
        r.time = now();
        put(&r, NULL, NULL, NULL);
        pthread_mutex_unlock(&lock);
    }
    return copy;
}

REAL_OF(dup) REAL_OF(dup2) REAL_OF(dup3)
int dup(int fd) { int n = CALL(dup)(fd); return is_ours(fd) ? note_duplicate(fd, n) : n; }
int dup2(int fd, int to) { int n = CALL(dup2)(fd, to); return is_ours(fd) ? note_duplicate(fd, n) : n; }
int dup3(int fd, int to, int flags)
{
    int n = CALL(dup3)(fd, to, flags);
    return is_ours(fd) ? note_duplicate(fd, n) : n;
}

static int control(int fd, int command, void *argument)
{
    int n = CALL(fcntl64)(fd, command, argument);
    int copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    return copies && is_ours(fd) ? note_duplicate(fd, n) : n;
}

#define ARGUMENT \
    va_list rest; \
    va_start(rest, command); \
    void *argument = va_arg(rest, void *); \
    va_end(rest);

int fcntl(int fd, int command, ...) { ARGUMENT return control(fd, command, argument); }
int fcntl64(int fd, int command, ...) { ARGUMENT return control(fd, command, argument); }

/* -- data -------------------------------------------------------------------------------------- */

static int is_zeros(const unsigned char *data, size_t size)
{
    return size && !data[0] && !memcmp(data, data + 1, size - 1);
}

static void put_write(struct record *r, const void *data, ssize_t done)
{
    if (done <= 0)
        return;
    r->size = (uint64_t) done;
    r->kind = is_zeros(data, (size_t) done) ? ZEROS : WRITE;
    put(r, NULL, NULL, data);
}

static off_t where(int fd)
{
    struct stat found;
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return fstat(fd, &found) ? 0 : found.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t size)
{
    struct record r = {.fd = fd};
    ssize_t done;
    if (!is_ours(fd))
        return CALL(write)(fd, data, size);
    pthread_mutex_lock(&lock);
    r.time = now();
    r.offset = where(fd);
    done = CALL(write)(fd, data, size);
    put_write(&r, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}

REAL_OF(pwrite64)
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    struct record r = {.fd = fd, .offset = offset};
    ssize_t done;
    if (!is_ours(fd))
        return CALL(pwrite64)(fd, data, size, offset);
    pthread_mutex_lock(&lock);
    r.time = now();
    done = CALL(pwrite64)(fd, data, size, offset);
    put_write(&r, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}

/* Several parts become one write: that is what they are to the file. */
static char *joined(const struct iovec *parts, int count, size_t *size)
{
    char *all, *at;
    *size = 0;
    for (int i = 0; i < count; i++)
        *size += parts[i].iov_len;
    at = all = aligned_alloc(4096, (*size + 4096) / 4096 * 4096);
    if (!all)
        abort();
    for (int i = 0; i < count; i++)
        at = mempcpy(at, parts[i].iov_base, parts[i].iov_len);
    return all;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    size_t size;
    ssize_t done;
    char *all;
    if (!is_ours(fd))
        return CALL(writev)(fd, parts, count);
    all = joined(parts, count, &size);
    done = write(fd, all, size);
    free(all);
    return done;
}

REAL_OF(pwritev64) REAL_OF(pwritev64v2)
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    size_t size;
    ssize_t done;
    char *all;
    if (!is_ours(fd))
        return CALL(pwritev64)(fd, parts, count, offset);
    all = joined(parts, count, &size);
    done = pwrite64(fd, all, size, offset);
    free(all);
    return done;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return pwritev64(fd, parts, count, offset);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    if (!is_ours(fd))
        return CALL(pwritev64v2)(fd, parts, count, offset, flags);
    if (flags)
        unknown("pwritev2 with flags");
    return offset == -1 ? writev(fd, parts, count) : pwritev64(fd, parts, count, offset);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, parts, count, offset, flags);
}

/* Asynchronous writes are recorded when they are known to have ended, with the time before they began.
 * What has not ended may or may not be there, as nobody has waited for it. */
enum { BEGUN_MAX = 1024 };
static struct begun {
    uint64_t iocb; /* its address, 0 for a free place */
    struct record r;
    const void *data;
} begun[BEGUN_MAX];

static void note_begun(struct iocb **list, long count, uint64_t time)
{
    for (long i = 0; i < count; i++) {
        struct iocb *one = list[i];
        int at = 0;
        if (!is_ours((int) one->aio_fildes))
            continue;
        if (one->aio_lio_opcode != IOCB_CMD_PWRITE)
            unknown("io_submit of something else than a write");
        pthread_mutex_lock(&lock);
        while (at < BEGUN_MAX && begun[at].iocb)
            at++;
        if (at == BEGUN_MAX)
            abort();
        begun[at].iocb = (uint64_t) (uintptr_t) one;
        begun[at].data = (const void *) (uintptr_t) one->aio_buf;
        begun[at].r = (struct record) {
            .time = time, .fd = (int32_t) one->aio_fildes, .offset = one->aio_offset};
        pthread_mutex_unlock(&lock);
    }
}

static void put_ended(struct io_event *events, long count)
{
    pthread_mutex_lock(&lock);
    for (long i = 0; i < count; i++)
        for (int at = 0; at < BEGUN_MAX; at++)
            if (begun[at].iocb && begun[at].iocb == events[i].obj) {
                begun[at].iocb = 0;
                put_write(&begun[at].r, begun[at].data, (ssize_t) events[i].res);
                break;
            }
    pthread_mutex_unlock(&lock);
}

REAL_OF(syscall)
long syscall(long number, ...)
{
    long word[6], done;
    uint64_t time = number == SYS_io_submit ? now() : 0;
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        word[i] = va_arg(list, long);
    va_end(list);
    done = CALL(syscall)(number, word[0], word[1], word[2], word[3], word[4], word[5]);
    if (number == SYS_io_submit && done > 0)
        note_begun((struct iocb **) word[2], done, time);
    if (number == SYS_io_getevents && done > 0)
        put_ended((struct io_event *) word[3], done);
    return done;
}

REAL_OF(ftruncate64)
int ftruncate64(int fd, off64_t size)
{
    struct record r = {.kind = RESIZE, .fd = fd, .offset = size};
    int answer;
    if (!is_ours(fd))
        return CALL(ftruncate64)(fd, size);
    pthread_mutex_lock(&lock);
    r.time = now();
    answer = CALL(ftruncate64)(fd, size);
    if (!answer)
        put(&r, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return answer;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

REAL_OF(fallocate64)
int fallocate64(int fd, int mode, off64_t offset, off64_t size)
{
    struct record r = {.kind = ALLOCATE, .fd = fd, .offset = offset, .size = (uint64_t) size};
    int answer;
    if (!is_ours(fd))
        return CALL(fallocate64)(fd, mode, offset, size);
    if (mode)
        unknown("fallocate with a mode");
    pthread_mutex_lock(&lock);
    r.time = now();
    answer = CALL(fallocate64)(fd, mode, offset, size);
    if (!answer)
        put(&r, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return answer;
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return fallocate64(fd, mode, offset, size); }
int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return fallocate64(fd, 0, offset, size) ? errno : 0;
}
int posix_fallocate(int fd, off_t offset, off_t size) { return posix_fallocate64(fd, offset, size); }

REAL_OF(mmap64)
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset)
{
    if (is_ours(fd) && (flags & MAP_SHARED) && (protection & PROT_WRITE))
        unknown("mmap, shared and writable");
    return CALL(mmap64)(at, size, protection, flags, fd, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return mmap64(at, size, protection, flags, fd, offset);
}

REAL_OF(copy_file_range) REAL_OF(sendfile64) REAL_OF(truncate64)
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
{
    if (is_ours(out))
        unknown("copy_file_range");
    return CALL(copy_file_range)(in, from, out, to, size, flags);
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size)
{
    if (is_ours(out))
        unknown("sendfile");
    return CALL(sendfile64)(out, in, offset, size);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) { return sendfile64(out, in, offset, size); }
int truncate64(const char *path, off64_t size)
{
    char full[PATH_MAX];
    if (below(AT_FDCWD, path, full))
        unknown("truncate by path");
    return CALL(truncate64)(path, size);
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }

/* -- names ------------------------------------------------------------------------------------- */

#define CHANGE(kind_, path_, other_, call) \
    struct record r = {.kind = kind_, .fd = -1}; \
    int answer; \
    pthread_mutex_lock(&lock); \
    r.time = now(); \
    answer = call; \
    if (!answer) \
        put(&r, path_, other_, NULL); \
    pthread_mutex_unlock(&lock); \
    return answer;

REAL_OF(renameat2) REAL_OF(unlinkat) REAL_OF(mkdirat) REAL_OF(linkat) REAL_OF(symlinkat)

int renameat2(int at, const char *old, int new_at, const char *new, unsigned flags)
{
    char from[PATH_MAX], to[PATH_MAX];
    const char *a = below(at, old, from), *b = below(new_at, new, to);
    if (!a && !b)
        return CALL(renameat2)(at, old, new_at, new, flags);
    if (!a || !b || flags)
        unknown("rename across the directory's edge, or with flags");
    CHANGE(RENAME, from, to, CALL(renameat2)(at, old, new_at, new, flags))
}
int renameat(int at, const char *old, int to, const char *new) { return renameat2(at, old, to, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int at, const char *path, int flags)
{
    char full[PATH_MAX];
    int kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    if (!below(at, path, full))
        return CALL(unlinkat)(at, path, flags);
    CHANGE(kind, full, NULL, CALL(unlinkat)(at, path, flags))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path)
{
    struct stat found;
    int is_directory = !lstat(path, &found) && S_ISDIR(found.st_mode);
    return unlinkat(AT_FDCWD, path, is_directory ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    char full[PATH_MAX];
    if (!below(at, path, full))
        return CALL(mkdirat)(at, path, mode);
    CHANGE(MKDIR, full, NULL, CALL(mkdirat)(at, path, mode))
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int at, const char *old, int new_at, const char *new, int flags)
{
    char from[PATH_MAX], to[PATH_MAX];
    const char *a = below(at, old, from), *b = below(new_at, new, to);
    if (!b)
        return CALL(linkat)(at, old, new_at, new, flags);
    if (!a)
        unknown("link to a file elsewhere");
    CHANGE(LINK, from, to, CALL(linkat)(at, old, new_at, new, flags))
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int symlinkat(const char *target, int at, const char *path)
{
    char full[PATH_MAX];
    if (below(at, path, full))
        unknown("symlink");
    return CALL(symlinkat)(target, at, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

/* -- syncs ------------------------------------------------------------------------------------- */

#define SYNC(flags_, call) \
    struct record r = {.kind = SYNC_BEGIN, .fd = fd, .flags = flags_}; \
    int answer, failed; \
    pthread_mutex_lock(&lock); \
    r.number = ++syncs; \
    r.time = now(); \
    put(&r, NULL, NULL, NULL); \
    pthread_mutex_unlock(&lock); \
    answer = call; \
    failed = errno; \
    pthread_mutex_lock(&lock); \
    r.kind = SYNC_END; \
    r.flags |= answer ? FAILED : 0; \
    r.time = now(); \
    put(&r, NULL, NULL, NULL); \
    pthread_mutex_unlock(&lock); \
    errno = failed; \
    return answer;

int fsync(int fd)
{
    if (!is_ours(fd))
        return CALL(fsync)(fd);
    SYNC(0, CALL(fsync)(fd))
}
int fdatasync(int fd)
{
    if (!is_ours(fd))
        return CALL(fdatasync)(fd);
    SYNC(0, CALL(fdatasync)(fd))
}
int syncfs(int fd)
{
    if (!is_ours(fd))
        return CALL(syncfs)(fd);
    SYNC(WHOLE_FILE_SYSTEM, CALL(syncfs)(fd))
}

/* It starts writing and promises nothing, so there is nothing to record. `sync` promises more than the
 * server relies on: without a record the disks that are made are only worse than real ones. */

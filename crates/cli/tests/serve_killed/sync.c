/* Ends the program that loads this (LD_PRELOAD) at one of its syncs, without a word, as a power switch would; or takes the room on its
 * disk away from there on: no file grows any more, and what is there can still be written over.
 *
 * strace can do that to a program with one thread: it counts the calls of each thread by itself, so of a server with several most
 * syncs are never reached. Here all threads count together.
 *
 * SYNC_COUNT    a file that gets one byte for each sync that begins
 * SYNC_KILLS    the sync that is the last, counted from 1
 * SYNC_HANGS    the sync that takes a minute, counted from 1
 * SYNC_FILLS    the sync from which on the disk is full, counted from 1
 * SYNC_IS_DONE  whether it is still done ("1"), or the program ends right before it ("0")
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long begun;

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int sync_or_end(long call, int file) {
    const char *count = getenv("SYNC_COUNT"), *kills = getenv("SYNC_KILLS"), *is_done = getenv("SYNC_IS_DONE");
    long number = atomic_fetch_add(&begun, 1) + 1;
    if (count) {
        int log = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log < 0 || syscall(SYS_write, log, ".", 1) != 1) abort();
        close(log);
    }
    int here = kills && atol(kills) == number;
    const char *hangs = getenv("SYNC_HANGS");
    if (hangs && atol(hangs) == number) sleep(60);
    if (here && !(is_done && *is_done == '1')) end();
    int done = (int)syscall(call, file);
    if (here) end();
    return done;
}

/* Whether a write of so many bytes would make a file grow for which there is no room. Logs, which are standard output and error, have theirs. */
static int has_no_room(int file, off64_t end) {
    const char *fills = getenv("SYNC_FILLS");
    struct stat64 is;
    if (!fills || file <= 2 || atomic_load(&begun) < atol(fills)) return 0;
    if (fstat64(file, &is) != 0 || !S_ISREG(is.st_mode) || end <= is.st_size) return 0;
    errno = ENOSPC;
    return 1;
}

static off64_t after(int file, size_t count) {
    if (fcntl(file, F_GETFL) & O_APPEND) return (off64_t)(1ull << 62);
    return lseek64(file, 0, SEEK_CUR) + (off64_t)count;
}

ssize_t write(int file, const void *bytes, size_t count) {
    if (has_no_room(file, after(file, count))) return -1;
    return syscall(SYS_write, file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    if (has_no_room(file, at + (off64_t)count)) return -1;
    return syscall(SYS_pwrite64, file, bytes, count, at);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

int fsync(int file) { return sync_or_end(SYS_fsync, file); }
int fdatasync(int file) { return sync_or_end(SYS_fdatasync, file); }

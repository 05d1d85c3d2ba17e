/* Ends the program that loads this (LD_PRELOAD) at one of its syncs, without a word, as a power switch would.
 *
 * strace can do that to a program with one thread: it counts the calls of each thread by itself, so of a server with several most
 * syncs are never reached. Here all threads count together.
 *
 * SYNC_COUNT    a file that gets one byte for each sync that begins
 * SYNC_KILLS    the sync that is the last, counted from 1
 * SYNC_HANGS    the sync that takes a minute, counted from 1
 * SYNC_IS_DONE  whether it is still done ("1"), or the program ends right before it ("0")
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
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
        if (log < 0 || write(log, ".", 1) != 1) abort();
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

int fsync(int file) { return sync_or_end(SYS_fsync, file); }
int fdatasync(int file) { return sync_or_end(SYS_fdatasync, file); }

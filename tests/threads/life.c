/* The threads of a library: it is opened, called, called from a forked child, called by several threads at once, and
   closed again while its workers spin, and while they sleep. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inputs.h"

static __typeof__(m_run) *run;
static DLTensor inputs[INPUTS];
static const DLTensor *args[INPUTS];
static DLManagedTensor *wanted[RESULTS];

/* Whether a call gives what the first one gave. */
static int same(void) {
  DLManagedTensor *got[RESULTS];
  int equal = 1;
  if (run(NULL, args, INPUTS, got, RESULTS, NULL)) return 0;
  for (int i = 0; i < RESULTS; ++i) {
    size_t n = 4;
    for (int32_t d = 0; d < got[i]->dl_tensor.ndim; ++d) n *= (size_t)got[i]->dl_tensor.shape[d];
    equal &= !memcmp(got[i]->dl_tensor.data, wanted[i]->dl_tensor.data, n);
    got[i]->deleter(got[i]);
  }
  return equal;
}

static void *calls(void *p) {
  for (int i = 0; i < 5; ++i) {
    if (!same()) *(int *)p = 1;
  }
  return NULL;
}

static int threads(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/task");
  while (readdir(d)) ++n;
  closedir(d);
  return n - 2;
}

int main(int argc, char **argv) {
  static int64_t x[] = {16, 512}, w[] = {512, 1024}, h[] = {8, 192, 64}, p[] = {1, 64, 56, 56}, e[] = {60003},
                 g[] = {12, 1, 512}, k[] = {1, 64, 14, 14};
  DLTensor all[INPUTS] = {tensor(x, 2, 1), tensor(w, 2, 2), tensor(h, 3, 3),
                          tensor(p, 4, 4), tensor(e, 1, 5), tensor(g, 3, 6), tensor(k, 4, 7)};
  memcpy(inputs, all, sizeof all);
  for (int i = 0; i < INPUTS; ++i) args[i] = &inputs[i];
  if (argc < 2) return 1;
  for (int round = 0; round < 20; ++round) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    *(void **)&run = dlsym(library, "m_run");
    if (threads() != 1) return 3;
    if (round == 0 && run(NULL, args, INPUTS, wanted, RESULTS, NULL)) return 4;
    if (!same()) return 5;
    if (threads() != 3) return fprintf(stderr, "%d threads\n", threads()), 6;
    if (round % 5 == 1) {
      pid_t child = fork();
      if (child == 0) {
        int bad = threads() != 1 || !same() || !same() || threads() != 3;
        dlclose(library);
        exit(bad || threads() != 1);
      }
      int status = -1;
      waitpid(child, &status, 0);
      if (status != 0) return fprintf(stderr, "the child: %d\n", status), 7;
      if (!same()) return 8;
    }
    if (round % 5 == 2) {
      pthread_t callers[3];
      int bad = 0;
      for (int i = 0; i < 3; ++i) pthread_create(&callers[i], NULL, calls, &bad);
      for (int i = 0; i < 3; ++i) pthread_join(callers[i], NULL);
      if (bad) return 9;
    }
    if (round % 2) usleep(3000);
    dlclose(library);
    if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) return 10;
    /* A thread that has been joined may stand in the list for a moment. */
    for (int i = 0; threads() != 1 && i < 1000; ++i) usleep(1000);
    if (threads() != 1) return fprintf(stderr, "%d threads are left\n", threads()), 11;
  }
  return 0;
}

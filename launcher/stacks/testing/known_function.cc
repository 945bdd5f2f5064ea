// A worker for the tests: it waits in known_function, in the main thread and in other ones, and answers each byte of its input.
//   usage: known_function [THREADS]
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

namespace known {

// Reads bytes and writes them back, until the end of the input.
template <typename T>
[[gnu::noinline]] void AnswerBytes(T& byte) {
  while (read(0, &byte, 1) == 1) {
    if (write(1, &byte, 1) != 1) break;
  }
}

}  // namespace known

extern "C" [[gnu::noinline]] void known_function() {
  char byte = 'r';
  if (write(1, &byte, 1) != 1) return;  // ready
  known::AnswerBytes(byte);
  __asm__ volatile("");  // the calls are not the last action, so that each function has a frame
}

extern "C" [[gnu::noinline]] void* other_thread(void*) {
  while (true) pause();
}

int main(int argc, char** argv) {
  for (int i = 0; i < (argc > 1 ? std::atoi(argv[1]) : 0); ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, other_thread, nullptr) != 0) return 1;
  }
  known_function();
  __asm__ volatile("");
}

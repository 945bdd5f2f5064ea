// A worker that only prints. `tee_worker BYTES LINE_BYTES` writes numbered lines of LINE_BYTES bytes each,
// BYTES in total, to stdout as fast as possible. It writes 8 KiB at a time, like Python's print. Its first
// line is "begin NS", with the monotonic time at its start. Its last line is "cpu NS", with its CPU time.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr size_t kWriteBytes = 8 << 10;

long long Ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void Write(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = write(STDOUT_FILENO, bytes, size);
    if (n < 0) {
      std::perror("tee_worker");
      std::exit(1);
    }
    bytes += n;
    size -= static_cast<size_t>(n);
  }
}

void Say(const char* what, long long ns) {
  const std::string line = what + (" " + std::to_string(ns)) + "\n";
  Write(line.data(), line.size());
}

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const size_t line_bytes = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (line_bytes < 12) {
    std::fprintf(stderr, "usage: tee_worker BYTES LINE_BYTES (LINE_BYTES must be at least 12)\n");
    return 2;
  }
  Say("begin", Ns(CLOCK_MONOTONIC));
  std::string line(line_bytes, 'x');
  line.back() = '\n';
  std::string buffer;
  for (size_t i = 0; i < bytes / line_bytes; ++i) {
    size_t number = i;
    for (int digit = 9; digit >= 0; --digit, number /= 10)
      line[static_cast<size_t>(digit)] = '0' + number % 10;
    buffer += line;
    size_t written = 0;
    for (; buffer.size() - written >= kWriteBytes; written += kWriteBytes) {
      Write(buffer.data() + written, kWriteBytes);
    }
    buffer.erase(0, written);
  }
  Write(buffer.data(), buffer.size());
  Say("cpu", Ns(CLOCK_PROCESS_CPUTIME_ID));
  return 0;
}

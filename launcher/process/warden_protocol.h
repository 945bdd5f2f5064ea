// What agent and warden say to each other over their socket: fixed-size messages, one per packet
// (SOCK_SEQPACKET), between two copies of the same binary on the same machine, so plain structs are the
// encoding.
//
//   agent -> warden   Request; a kSpawn carries four descriptors: stdin, stdout, stderr, and a memory file
//                     (spawn_file.h). A kRemoveAtEnd carries one, O_PATH, of the file that is to go when the
//                     agent has gone.
//   warden -> agent   Event. Each kSpawn is answered by kNeverStarted, or by kStarted and later kExited.
//                     Where exec takes long, one kSlowStart comes before that.
//                     Each kKillAll is answered by any number of kLeftOver and one kAllDead.
//                     kFenced tells that the deadline of the last kFence has come; the ends of those whom it
//                     killed follow.
//                     Each kPing is answered by kPong at once: a warden that does not answer is stopped, or
//                     hangs in the kernel.
// Last words: a kLastWords carries two descriptors, a connected stream socket (the line) and a memory file of
// `bytes` bytes (the words), or none. The warden keeps the newest line with its words; an older one is
// closed, and a kLastWords without descriptors only closes it. When the agent has gone and no descendant is
// left, the warden writes the words on the line, ends it, and ends itself. So who reads them knows that
// nothing of this node's workers is left. They are not written when a descendant is left over (it was not
// killed in time), when the warden itself is killed, or when the line takes no more bytes within a second:
// then the line ends without them, or is cut.
//   An agent that ends in the ordinary way says by itself what is to be said. It shuts its line down before
// it closes its socket, so that the warden's words go nowhere, unless it wants them said then, too. It does
// not tell the warden so: a warden that is stopped, or has much to read, would learn that too late, or not at
// all.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

namespace ddprun::warden_protocol {

enum class RequestKind : uint32_t {
  kSpawn,
  kSignal,
  kSignalAll,
  kKillAll,
  kFence,
  kUnfence,
  kRemoveAtEnd,
  kPing,
  kLastWords
};

struct Request {
  RequestKind kind = {};
  int32_t signo = {};        // kSignal, kSignalAll
  uint64_t id = {};          // kSpawn, kSignal: the worker; kKillAll: > 0, comes back in its answers
  uint32_t num_args = {};    // kSpawn: > 0
  uint32_t num_env = {};     // kSpawn
  uint64_t bytes = {};       // kSpawn, kLastWords: size of the memory file
  uint32_t limit_ms = {};    // kKillAll: give up after that long
  uint32_t has_cpus = {};    // kSpawn: `cpus` is to be applied
  int64_t deadline_ns = {};  // kFence: nanoseconds of CLOCK_BOOTTIME
  cpu_set_t cpus = {};       // kSpawn
};

enum class EventKind : uint32_t {
  kStarted,
  kNeverStarted,
  kSlowStart,
  kExited,
  kLeftOver,
  kAllDead,
  kFenced,
  kPong
};

// What a start was doing when it failed.
enum class StartStage : uint32_t { kReceive, kFork, kAffinity, kDirectory, kExec };

struct Event {
  EventKind kind = {};
  int32_t pid = {};          // kStarted, kSlowStart, kExited, kLeftOver; 0: not known
  uint64_t id = {};          // as in the request
  int32_t error = {};        // kNeverStarted: errno
  StartStage stage = {};     // kNeverStarted
  int32_t wait_status = {};  // kExited
  char state = {};           // kLeftOver, kSlowStart: as ProcessEntry::state
  char comm[16] = {};        // kLeftOver, kSlowStart; empty: not known
  char wait[64] = {};        // likewise: where in the kernel it waits
  int64_t user_us = {};      // kExited: processor time of the worker and of the children it waited for
  int64_t system_us = {};    // kExited
  int64_t max_rss_kib = {};  // kExited: largest resident size
};

}  // namespace ddprun::warden_protocol

// The memory file of a kSpawn: working directory, file, arguments and environment of a worker, in that order,
// each string ended by a NUL.

namespace ddprun {

// A file without a name, with `text` in it; none, with errno, where it cannot be made.
UniqueFd MemoryFile(const std::string& text);

// Fills the fields of `request` that say how the file is cut.
//   REQUIRES: no string has a NUL in it.
UniqueFd MakeSpawnFile(const std::string& cwd, const std::string& file, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& env,
                       warden_protocol::Request& request);

// The file, cut into the arrays that exec wants, which point into it.
class SpawnStrings {
 public:
  SpawnStrings() = default;
  SpawnStrings(const SpawnStrings&) = delete;
  SpawnStrings& operator=(const SpawnStrings&) = delete;
  ~SpawnStrings();

  // False, with errno, when the file cannot be mapped. Once.
  bool Map(int fd, const warden_protocol::Request& request);

  const char* cwd() const { return cwd_; }
  const char* file() const { return file_; }
  char* const* argv() const { return argv_.data(); }
  char* const* env() const { return env_.data(); }

 private:
  char* map_ = nullptr;
  size_t size_ = 0;
  const char* cwd_ = nullptr;
  const char* file_ = nullptr;
  std::vector<char*> argv_;
  std::vector<char*> env_;
};

}  // namespace ddprun

// The protocol of agent and warden over their socket: fixed-size messages, one per packet (SOCK_SEQPACKET).
// Both ends are the same binary on the same machine, so plain structs are the encoding.
//
//   agent -> warden   Request. A kSpawn carries four descriptors: stdin, stdout, stderr, and a memory file
//                     (MakeSpawnFile). A kRemoveAtEnd carries one (O_PATH), of a file that is removed after
//                     the agent has ended.
//   warden -> agent   Event. Each kSpawn is answered by kNeverStarted, or by kStarted and later kExited; if
//                     exec is slow, one kSlowStart precedes that.
//                     Each kKillAll is answered by any number of kLeftOver and one kAllDead.
//                     kFenced: the deadline of the last kFence has passed; the kExited of all workers follow.
//                     Each kPing is answered by kPong at once: a warden that does not answer is stopped, or
//                     hangs in the kernel.
//
// Last words: a kLastWords carries two descriptors, a connected stream socket and a memory file of `bytes`
// bytes (the words), or none. The warden keeps the newest socket with its words and closes an older one; a
// kLastWords without descriptors only closes it. When the agent has ended and no descendant is left, the
// warden writes the words to the socket, shuts it down, and exits. So a reader of the words knows that
// nothing of this node's workers is left. They are not written if a descendant is left (it was not killed in
// time) or if the warden is killed. If the socket accepts no more bytes within a second, they are missing or
// truncated.
//   An agent that exits normally sends its own last message. It shuts the socket of the last words down
// before it closes its socket to the warden, so that the warden's words are discarded, unless it wants them
// written (kAnyEnd). It does not use a request for this: a warden that is stopped, or has many requests to
// read, would handle it too late or not at all.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "os/descriptor.h"

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
  uint64_t id = {};          // kSpawn, kSignal: the worker; kKillAll: > 0, repeated in its answers
  uint32_t num_args = {};    // kSpawn: > 0
  uint32_t num_env = {};     // kSpawn
  uint64_t bytes = {};       // kSpawn, kLastWords: size of the memory file
  uint32_t limit_ms = {};    // kKillAll: time limit
  uint32_t has_cpus = {};    // kSpawn: `cpus` is set
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

// The stage at which a start failed.
enum class StartStage : uint32_t { kReceive, kFork, kAffinity, kDirectory, kExec };

struct Event {
  EventKind kind = {};
  int32_t pid = {};          // kStarted, kSlowStart, kExited, kLeftOver; 0: unknown
  uint64_t id = {};          // as in the request
  int32_t error = {};        // kNeverStarted: errno
  StartStage stage = {};     // kNeverStarted
  int32_t wait_status = {};  // kExited
  char state = {};           // kLeftOver, kSlowStart: as ProcessEntry::state
  char comm[16] = {};        // kLeftOver, kSlowStart; empty: unknown
  char wait[64] = {};        // kLeftOver, kSlowStart: as KernelWait()
  int64_t user_us = {};      // kExited: processor time of the worker and of the children it waited for
  int64_t system_us = {};    // kExited
  int64_t max_rss_kib = {};  // kExited: largest resident size
};

}  // namespace ddprun::warden_protocol

// The memory file of a kSpawn: working directory, file, arguments and environment of a worker, in that order,
// each string terminated by a NUL.

namespace ddprun {

// An anonymous file that contains `text`; none, with errno: it cannot be created.
UniqueFd MemoryFile(const std::string& text);

// Also sets num_args, num_env and bytes of `request`. None, with errno: the file cannot be created.
//   REQUIRES: no string contains a NUL.
UniqueFd MakeSpawnFile(const std::string& cwd, const std::string& file, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& env,
                       warden_protocol::Request& request);

// The arrays for exec, which point into the mapped file.
class SpawnStrings {
 public:
  SpawnStrings() = default;
  SpawnStrings(const SpawnStrings&) = delete;
  SpawnStrings& operator=(const SpawnStrings&) = delete;
  ~SpawnStrings();

  // False, with errno: the file cannot be mapped. Call once.
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

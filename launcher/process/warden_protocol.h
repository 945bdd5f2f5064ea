// The protocol between agent and warden over their socket: fixed-size messages, one per packet
// (SOCK_SEQPACKET). Both ends run the same binary on the same machine, so messages are plain structs.
//
//   agent -> warden   Request. A kSpawn carries four descriptors: stdin, stdout, stderr, and a memory file
//                     (MakeSpawnFile). A kRemoveAtEnd carries one O_PATH descriptor; its file is removed
//                     after the agent has ended.
//   warden -> agent   Event. The answer to a kSpawn is one kSlowStart if exec is slow, then kNeverStarted, or
//                     kStarted and later kExited.
//                     The answer to a kKillAll is any number of kLeftOver, then one kAllDead.
//                     kFenced: the deadline of the last kFence has passed; a kExited for each worker follows.
//                     The answer to a kPing is an immediate kPong. A warden that does not answer is stopped
//                     or hangs in the kernel.
//
// Last words: a kLastWords carries either two descriptors, a connected stream socket and a memory file with
// `bytes` bytes (the words), or none. The warden keeps only the newest socket and its words, and closes the
// previous socket; a kLastWords without descriptors only closes it. When the agent has ended and no
// descendant is left, the warden writes the words to the socket, shuts the socket down, and exits. A reader
// that receives the words therefore knows that no process of this node's workers is left. The words are not
// written if a descendant could not be killed in time, or if the warden is killed. They are missing or
// truncated if the socket does not accept all of them within a second.
//   An agent that exits normally sends its own last message. Unless it wants the last words written
// (kAnyEnd), it shuts down their socket before it closes its socket to the warden, so that they are
// discarded. It does not send a request for this, because a warden that is stopped or has many requests to
// read would handle the request too late or not at all.
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
  uint64_t id = {};          // kSpawn, kSignal: the worker; kKillAll: > 0, repeated in the answers
  uint32_t num_args = {};    // kSpawn: > 0
  uint32_t num_env = {};     // kSpawn
  uint64_t bytes = {};       // kSpawn, kLastWords: size of the memory file
  uint32_t limit_ms = {};    // kKillAll: time limit
  uint32_t has_cpus = {};    // kSpawn: `cpus` is set
  int64_t deadline_ns = {};  // kFence: CLOCK_BOOTTIME, in nanoseconds
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
  int64_t user_us = {};      // kExited: processor time of the worker and the children it waited for
  int64_t system_us = {};    // kExited
  int64_t max_rss_kib = {};  // kExited: largest resident size
};

}  // namespace ddprun::warden_protocol

// The memory file of a kSpawn contains the working directory, file, arguments and environment of a worker, in
// that order; each string ends with a NUL.

namespace ddprun {

// Returns an anonymous file that contains `text`. If it cannot be created, returns an invalid descriptor and
// sets errno.
UniqueFd MemoryFile(const std::string& text);

// Also sets num_args, num_env and bytes of `request`. If the file cannot be created, returns an invalid
// descriptor and sets errno.
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

  // Returns false and sets errno if the file cannot be mapped. Call once.
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

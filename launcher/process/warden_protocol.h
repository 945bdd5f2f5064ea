// The protocol between the agent and the warden. They exchange fixed-size messages over a socket, one message
// per packet (SOCK_SEQPACKET). Both ends run the same binary on the same machine, so messages are plain
// structs.
//
//   agent -> warden   Request. A kSpawn carries four descriptors: stdin, stdout, stderr, and a memory file
//                     (MakeSpawnFile). A kRemoveAtEnd carries one O_PATH descriptor. After the agent has
//                     ended, the warden removes the file to which the descriptor refers.
//   warden -> agent   Event. The answer to a kSpawn is either kNeverStarted, or kStarted and later kExited.
//                     If exec is slow, one kSlowStart precedes the answer.
//                     The answer to a kKillAll is any number of kLeftOver, then one kAllDead.
//                     A kSpare before it adds one worker to those that the next kKillAll spares.
//                     A kFenced means that the deadline of the last kFence has passed. A kExited follows for
//                     each worker that the warden kills.
//                     The answer to a kPing is an immediate kPong. A warden that does not answer is stopped
//                     or hangs.
//
// Last words: the message that the warden writes to a peer of the agent after the agent has ended. A
// kLastWords that sets the words carries two descriptors: a connected stream socket and a memory file that
// contains the words. A kLastWords without descriptors discards the words. On each kLastWords, the warden
// discards the previous words and closes their socket. When the agent has ended and no descendant is left,
// the warden writes the words to the socket, shuts the socket down, and exits. The words therefore prove to
// the peer that no process of this node's workers is left. The warden does not write the words if a
// descendant could not be killed in time, or if the warden itself is killed. If the socket does not accept
// all of the words within a second, the peer receives only a part of the words or nothing.
//
// An agent that exits normally sends its own last message. It therefore discards the last words, unless they
// were set with WardenClient::SayAt::kAnyEnd: it shuts down the words' socket before it closes its socket to
// the warden. A kLastWords request would not be enough, because a warden that is stopped or has many unread
// requests would handle the request too late or not at all.
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
  kSpare,
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
  uint64_t id = {};          // kSpawn, kSignal, kSpare: the worker; kKillAll: > 0, repeated in the answers
  uint32_t num_args = {};    // kSpawn: number of arguments, > 0
  uint32_t num_env = {};     // kSpawn: number of environment variables
  uint64_t bytes = {};       // kSpawn, kLastWords: size of the memory file
  uint32_t limit_ms = {};    // kKillAll: time limit
  uint32_t has_cpus = {};    // kSpawn: 1 if `cpus` is set, otherwise 0
  int64_t deadline_ns = {};  // kFence: CLOCK_BOOTTIME, in nanoseconds
  uint64_t ignored = {};     // kSpawn: signals that the worker ignores from the start; bit n: signal n
  cpu_set_t cpus = {};       // kSpawn: processors that the worker may use
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
  int32_t pid = {};          // kStarted, kSlowStart, kExited, kLeftOver; 0 if unknown
  uint64_t id = {};          // the id in the request
  int32_t error = {};        // kNeverStarted: errno
  StartStage stage = {};     // kNeverStarted
  int32_t wait_status = {};  // kExited: the status from wait4()
  char state = {};           // kLeftOver, kSlowStart: see ProcessEntry::state
  char comm[16] = {};        // kLeftOver, kSlowStart: see ProcessEntry::comm; empty if unknown
  char wait[64] = {};        // kLeftOver, kSlowStart: see KernelWait()
  int64_t user_us = {};      // kExited: user CPU time of the worker and of the children that it reaped
  int64_t system_us = {};    // kExited: system CPU time of the same processes
  int64_t max_rss_kib = {};  // kExited: maximum resident set size
};

}  // namespace ddprun::warden_protocol

// The memory file of a kSpawn contains the working directory, the path of the program, the arguments and the
// environment of a worker, in this order. Each string ends with a NUL.

namespace ddprun {

// Returns an anonymous file that contains `text`. If the file cannot be created, returns an invalid
// descriptor and sets errno.
UniqueFd MemoryFile(const std::string& text);

// Returns the memory file of a kSpawn, and sets num_args, num_env and bytes of `request`. If the file cannot
// be created, returns an invalid descriptor and sets errno.
//   REQUIRES: no string contains a NUL.
UniqueFd MakeSpawnFile(const std::string& cwd, const std::string& file, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& env,
                       warden_protocol::Request& request);

// The contents of a kSpawn's memory file, in the form that execve() needs. The pointers refer to a private
// mapping of the file, which exists until this object is destroyed.
class SpawnStrings {
 public:
  SpawnStrings() = default;
  SpawnStrings(const SpawnStrings&) = delete;
  SpawnStrings& operator=(const SpawnStrings&) = delete;
  ~SpawnStrings();

  // Maps the memory file `fd` of `request`. Returns false and sets errno if this fails. Call once.
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

// How two ranks' processes meet: every connection begins with a greeting in both directions, and who cannot
// greet is dropped.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "os/unique_fd.h"

namespace ddprun {

// Random, made by who listens and known to who can read the store.
using Token = std::array<unsigned char, 16>;
absl::StatusOr<Token> NewToken();
std::string TokenToHex(const Token& token);
absl::StatusOr<Token> TokenFromHex(absl::string_view hex);

// What a connection is for.
enum class LinkKind : uint32_t {
  kLocal = 1,    // a rank to its node's hub (local rank 0): the segment comes with the answer
  kControl = 2,  // hub to hub
  kLane = 3,     // lane l of one node to lane l of another: the data
};

// Sent as it is, first by who connects, then in answer.
struct Greeting {
  static constexpr uint64_t kMagic = 0x314d4d4f43504444;  // "DDPCOMM1"
  uint64_t magic = kMagic;
  LinkKind kind = LinkKind::kLocal;
  int32_t from = 0;  // rank of the sender
  int32_t to = 0;    // rank it means to talk to
  uint32_t reserved = 0;
  int64_t round = 0;
  uint64_t run_id_hash = 0;
  Token token = {};  // the listener's
};
static_assert(sizeof(Greeting) == 56);

uint64_t HashRunId(absl::string_view run_id);

// A listening socket and its address.
//   TCP: a port of the system's choice on `host`, a numeric address; address() is "host port". Where no
//        interface of this machine has the address (it is translated on the way), on all interfaces.
//   Unix: an abstract name, unguessable; address() is it. SOCK_SEQPACKET.
class Listener {
 public:
  static absl::StatusOr<Listener> Tcp(const std::string& host);
  static absl::StatusOr<Listener> Unix();

  const std::string& address() const { return address_; }

  // Accepts connections until `greeted` has said true `num_expected` times. For each connection that sends a
  // well-formed greeting in time, `greeted` decides whether it is wanted, answers and keeps the fd (moves
  // from it) then. All others are closed; they cannot hold up the wanted ones.
  //   Errors: kDeadlineExceeded.
  using Greeted = std::function<bool(const Greeting&, UniqueFd&)>;
  absl::Status Accept(int num_expected, TimePoint deadline, const Greeted& greeted);

 private:
  Listener(UniqueFd fd, bool is_unix, std::string address)
      : fd_(std::move(fd)), is_unix_(is_unix), address_(std::move(address)) {}

  UniqueFd fd_;
  bool is_unix_;
  std::string address_;
};

// Connects to a Listener's address, greets, and waits for the answer.
//   `passed_fd`: where a descriptor that comes with the answer goes, or null.
//   Errors: kUnavailable: nobody there, or it closed the connection (it refuses us); kDeadlineExceeded;
//           kAborted: who answers is another rank or of another round.
absl::StatusOr<UniqueFd> ConnectTcp(const std::string& address, const Greeting& greeting, TimePoint deadline);
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& name, const Greeting& greeting, TimePoint deadline,
                                     UniqueFd* passed_fd);

// The answer to `greeting`, with `pass_fd` when that is >= 0.
absl::Status Answer(const UniqueFd& fd, const Greeting& greeting, int pass_fd);

}  // namespace ddprun

// One connection to a c10d TCP store, dialect V: requests go out, replies come back in order, and what can go
// wrong between them has one of two outcomes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "proto/c10d_wire.h"

namespace ddprun {

//   Errors:  kInvalidArgument: no store would take the request; nothing was sent;
//            kUnavailable: the connection is dead, and says so from now on. An answer that is late or wrong
//            leaves it out of step: nothing more can be asked on it.
//   Threads: one caller at a time.
class C10dConnection {
 public:
  // As C10dClient::Connect; `timeout` is also that of each later request but of those that wait.
  static absl::StatusOr<std::unique_ptr<C10dConnection>> Open(const std::string& host, int port,
                                                              Duration timeout);
  ~C10dConnection();
  C10dConnection(const C10dConnection&) = delete;
  C10dConnection& operator=(const C10dConnection&) = delete;

  // Sends a request that has no reply.
  absl::Status Tell(const c10d::Request& request);

  // Sends a request and reads its reply by `receive(deadline)`, which returns a StatusOr.
  template <typename Receive>
  auto Ask(const c10d::Request& request, Receive receive) -> decltype(receive(TimePoint())) {
    const TimePoint deadline = Deadline();
    if (absl::Status sent = Send(request, deadline); !sent.ok()) return sent;
    auto reply = receive(deadline);
    if (!reply.ok()) return Break(reply.status(), c10d::Info(c10d::OpOf(request)).name);
    return reply;
  }

  // Sends a WAIT or BARRIER and waits for its answer.
  //   Errors: kDeadlineExceeded naming `awaited`: the wait has been given up, the connection stays usable.
  absl::Status Await(const c10d::Request& request, const std::string& awaited, Duration timeout);

  // Pieces of replies. Errors: kUnavailable, kDeadlineExceeded; Ask makes the right ones of them.
  absl::StatusOr<uint8_t> ReceiveU8(TimePoint deadline);
  absl::StatusOr<int64_t> ReceiveI64(TimePoint deadline);
  absl::StatusOr<std::string> ReceiveBytes(TimePoint deadline);
  absl::StatusOr<std::vector<std::string>> ReceiveList(uint64_t num_items, TimePoint deadline);

  // Numeric, without a port; empty when the connection is gone.
  std::string local_address() const;

 private:
  C10dConnection(std::string endpoint, Duration timeout)
      : endpoint_(std::move(endpoint)), timeout_(timeout) {}

  TimePoint Deadline() const;
  absl::Status Send(const c10d::Request& request, TimePoint deadline);
  absl::Status SendOut(TimePoint deadline);
  absl::Status Receive(char* data, size_t size, TimePoint deadline);
  absl::Status Greet(TimePoint deadline);
  absl::Status Break(const absl::Status& why, absl::string_view doing);

  const std::string endpoint_;  // for messages
  const Duration timeout_;
  int fd_ = -1;
  absl::Status broken_;  // why the connection is of no use any more
  std::string out_;      // the request being made
};

}  // namespace ddprun

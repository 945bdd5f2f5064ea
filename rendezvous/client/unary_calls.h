// Unary calls of gRPC whose results arrive on an io_context.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

//   Threads: that of the io_context.
class UnaryCalls {
 public:
  explicit UnaryCalls(boost::asio::io_context& io);
  // Cancels the calls in flight. Their `then` is not called.
  ~UnaryCalls();
  UnaryCalls(const UnaryCalls&) = delete;
  UnaryCalls& operator=(const UnaryCalls&) = delete;

  // Starts a call. It must call its last argument exactly once, on any thread, as the last use of the channel. It owns what the
  // call uses, and is kept until the call has ended.
  using Start = std::function<void(grpc::ClientContext* context, std::function<void(grpc::Status)> done)>;
  // Makes a call that ends at `limit` at the latest.
  //   then: not called within this call.
  void Send(TimePoint limit, Start start, std::function<void(const absl::Status&)> then);

 private:
  struct Call;
  class Calls;

  boost::asio::io_context& io_;
  const std::shared_ptr<Calls> calls_;
  Alive alive_;
};

}  // namespace ddprun

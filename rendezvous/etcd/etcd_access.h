// Calls to etcd: connections to its members, the choice among them, and authentication.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/client/unary_calls.h"
#include "rendezvous/etcd/etcd_error.h"
#include "rendezvous/etcd/etcd_options.h"

namespace ddprun {

// Starts one RPC. It may be called several times, one after the other. The last argument must be called exactly once, on any
// thread, as the last use of the channel. This function owns what the RPC uses; it outlives the RPC.
using EtcdRpc = std::function<void(const std::shared_ptr<grpc::Channel>& channel,
                                   grpc::ClientContext* context, std::function<void(grpc::Status)> done)>;

// Members are tried in turn, beginning with the one that has answered last.
//   Threads: the thread of its io_context.
class EtcdAccess {
 public:
  // The destructor cancels the calls in flight. Their `done` is not called.
  EtcdAccess(boost::asio::io_context& io, const EtcdOptions& options);
  EtcdAccess(const EtcdAccess&) = delete;
  EtcdAccess& operator=(const EtcdAccess&) = delete;

  enum class Repeat {
    kAllowed,    // if the answer is lost or late, the RPC is sent to another member
    kIfNotDone,  // only if it was certainly not carried out
  };
  // Makes a call, at other members if one is unavailable, until `deadline`.
  //   done:   not called within this call; at the latest soon after `deadline`.
  //   Errors: as those of CharterRegister; kNotFound: the lease of the keys does not exist, and nothing was carried out.
  void Call(Repeat repeat, TimePoint deadline, EtcdRpc rpc, std::function<void(absl::Status)> done);

 private:
  struct Operation;

  void Try(const std::shared_ptr<Operation>& operation);
  // Sends one RPC.
  void Send(size_t endpoint, const EtcdRpc& start, TimePoint limit,
            std::function<void(const absl::Status&)> then);
  void Authenticate(const std::shared_ptr<Operation>& operation);
  void Failed(const std::shared_ptr<Operation>& operation, const EtcdError& error);
  // Continues with the next endpoint, after a pause if all have been tried.
  void Rotate(const std::shared_ptr<Operation>& operation);
  void Finish(const std::shared_ptr<Operation>& operation, const absl::Status& status);
  absl::Status AllFailed(const Operation& operation) const;
  TimePoint AttemptLimit(const Operation& operation) const;
  const std::shared_ptr<grpc::Channel>& Channel(size_t endpoint);

  boost::asio::io_context& io_;
  const EtcdOptions options_;
  const EtcdErrorContext context_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  // of each endpoint; null: to be created
  size_t current_ = 0;                                    // endpoint with which the next call begins
  std::string token_;                                     // of etcd's authentication; empty: none
  bool no_authentication_ = false;                        // etcd has said that it is not enabled
  Alive alive_;
  UnaryCalls calls_;
};

// What the keys of the job begin with, without the slash that follows.
std::string EtcdKeys(const EtcdOptions& options);

}  // namespace ddprun

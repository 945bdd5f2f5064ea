// Serves a store to gRPC clients. The store is shared with the c10d connections to the same port.
#pragma once

#include <string>
#include <utility>

#include "boost/asio/io_context.hpp"
#include "proto/store.grpc.pb.h"
#include "rendezvous/grpc/store_calls.h"

namespace ddprun {

// Validates each request and passes it to StoreCalls.
//   Threads: gRPC's threads call the service methods. Use must be called on the thread of `io`. Any thread
//            may call EndAll.
//   Source:  proto/store.proto; docs/protocol.md, "Store over gRPC".
class StoreService final : public proto::Store::CallbackService {
 public:
  // The arguments are those of StoreCalls.
  explicit StoreService(boost::asio::io_context& io, uint64_t max_bytes = kMaxBytesOfCalls,
                        StoreCalls::OnMessage on_message = {})
      : calls_(io, max_bytes, std::move(on_message)) {}

  // See StoreCalls.
  void Use(StoreHub* hub) { calls_.Use(hub); }
  void EndAll(const std::string& why) { calls_.EndAll(why); }

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* Greet(Context* context, const proto::GreetRequest* request, proto::GreetReply* reply) override;
  Reactor* Set(Context* context, const proto::SetRequest* request, proto::SetReply* reply) override;
  Reactor* MultiSet(Context* context, const proto::MultiSetRequest* request,
                    proto::MultiSetReply* reply) override;
  Reactor* Append(Context* context, const proto::AppendRequest* request, proto::AppendReply* reply) override;
  Reactor* CompareSet(Context* context, const proto::CompareSetRequest* request,
                      proto::CompareSetReply* reply) override;
  Reactor* Add(Context* context, const proto::AddRequest* request, proto::AddReply* reply) override;
  Reactor* Get(Context* context, const proto::GetRequest* request, proto::GetReply* reply) override;
  Reactor* TryGet(Context* context, const proto::TryGetRequest* request, proto::TryGetReply* reply) override;
  Reactor* MultiGet(Context* context, const proto::MultiGetRequest* request,
                    proto::MultiGetReply* reply) override;
  Reactor* Check(Context* context, const proto::CheckRequest* request, proto::CheckReply* reply) override;
  Reactor* Wait(Context* context, const proto::WaitRequest* request, proto::WaitReply* reply) override;
  Reactor* NumKeys(Context* context, const proto::NumKeysRequest* request,
                   proto::NumKeysReply* reply) override;
  Reactor* ListKeys(Context* context, const proto::ListKeysRequest* request,
                    proto::ListKeysReply* reply) override;
  Reactor* DeleteKey(Context* context, const proto::DeleteKeyRequest* request,
                     proto::DeleteKeyReply* reply) override;
  Reactor* QueuePush(Context* context, const proto::QueuePushRequest* request,
                     proto::QueuePushReply* reply) override;
  Reactor* QueuePop(Context* context, const proto::QueuePopRequest* request,
                    proto::QueuePopReply* reply) override;
  Reactor* QueueLen(Context* context, const proto::QueueLenRequest* request,
                    proto::QueueLenReply* reply) override;
  Reactor* Barrier(Context* context, const proto::BarrierRequest* request,
                   proto::BarrierReply* reply) override;

  StoreCalls calls_;
};

}  // namespace ddprun

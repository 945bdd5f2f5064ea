#include "rendezvous/grpc/store_service.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/store_request.h"

namespace ddprun {
namespace {

using Keys = google::protobuf::RepeatedPtrField<std::string>;

std::vector<absl::string_view> Views(const Keys& keys) { return {keys.begin(), keys.end()}; }

absl::Status CheckKeys(absl::string_view name, const Keys& keys) {
  StoreRequestCheck check(name);
  check.NumItems(static_cast<size_t>(keys.size()));
  for (const std::string& key : keys) check.Key(key);
  return check.status();
}

// Converts the status of an operation that does not wait into a result for StoreQuestion::ask.
absl::StatusOr<bool> Done(const absl::Status& status) {
  RETURN_IF_ERROR(status);
  return true;
}

std::string Owned(absl::string_view bytes) { return std::string(bytes); }

// Limits the size of a reply. Without the limit, a small request could cause a reply of gigabytes, because
// MultiGet may name many keys with large values, and Append can create large values.
class ReplyRoom {
 public:
  explicit ReplyRoom(const StoreTurn& turn) : held_(turn.held) {}

  // Must be called before `bytes` are added to the reply.
  absl::Status Add(size_t bytes) {
    bytes_ += sizeof(uint64_t) + bytes;
    if (bytes_ <= kDefaultMaxReplyBytes) return held_.Add(sizeof(std::string) + bytes, "a reply");
    return absl::ResourceExhaustedError(
        absl::StrCat("the reply would have more than ", kDefaultMaxReplyBytes, " bytes: request fewer keys"));
  }

 private:
  HeldBytes& held_;
  uint64_t bytes_ = 0;
};

absl::Status SetValue(absl::string_view value, const StoreTurn& turn, std::string* reply) {
  RETURN_IF_ERROR(ReplyRoom(turn).Add(value.size()));
  *reply = Owned(value);
  return absl::OkStatus();
}

}  // namespace

StoreService::Reactor* StoreService::Greet(Context* context, const proto::GreetRequest* request,
                                           proto::GreetReply* reply) {
  return calls_.Start(context, absl::OkStatus(), *request, {.ask = [reply](const StoreTurn& turn) {
                        reply->set_store(turn.store_id);
                        return true;
                      }});
}

StoreService::Reactor* StoreService::Set(Context* context, const proto::SetRequest* request,
                                         proto::SetReply*) {
  return calls_.Start(context, StoreRequestCheck("Set").Key(request->key()).Value(request->value()).status(),
                      *request, {.ask = [request](const StoreTurn& turn) {
                        return Done(turn.hub.store().Set(request->key(), request->value(), turn.hub.woken()));
                      }});
}

StoreService::Reactor* StoreService::MultiSet(Context* context, const proto::MultiSetRequest* request,
                                              proto::MultiSetReply*) {
  StoreRequestCheck check("MultiSet");
  check.NumItems(static_cast<size_t>(request->pairs_size()));
  for (const auto& pair : request->pairs()) check.Key(pair.key()).Value(pair.value());
  return calls_.Start(context, check.status(), *request, {.ask = [request](const StoreTurn& turn) {
                        std::vector<KvStore::Pair> pairs;
                        for (const auto& pair : request->pairs()) pairs.push_back({pair.key(), pair.value()});
                        return Done(turn.hub.store().MultiSet(pairs, turn.hub.woken()));
                      }});
}

StoreService::Reactor* StoreService::Append(Context* context, const proto::AppendRequest* request,
                                            proto::AppendReply*) {
  return calls_.Start(
      context, StoreRequestCheck("Append").Key(request->key()).Value(request->value()).status(), *request,
      {.ask = [request](const StoreTurn& turn) {
        return Done(turn.hub.store().Append(request->key(), request->value(), turn.hub.woken()));
      }});
}

StoreService::Reactor* StoreService::CompareSet(Context* context, const proto::CompareSetRequest* request,
                                                proto::CompareSetReply* reply) {
  StoreRequestCheck check("CompareSet");
  check.Key(request->key()).Value(request->expected()).Value(request->desired());
  return calls_.Start(
      context, check.status(), *request,
      {.ask = [request, reply](const StoreTurn& turn) -> absl::StatusOr<bool> {
        KvStore& store = turn.hub.store();
        // The reply is one of these three values.
        RETURN_IF_ERROR(
            ReplyRoom(turn).Add(std::max(
                {store.Get(request->key()).size(), request->expected().size(), request->desired().size()})),
            "CompareSet");
        ASSIGN_OR_RETURN(
            const absl::string_view value,
            store.CompareSet(request->key(), request->expected(), request->desired(), turn.hub.woken()));
        reply->set_value(Owned(value));
        return true;
      }});
}

StoreService::Reactor* StoreService::Add(Context* context, const proto::AddRequest* request,
                                         proto::AddReply* reply) {
  return calls_.Start(context, StoreRequestCheck("Add").Key(request->key()).status(), *request,
                      {.ask = [request, reply](const StoreTurn& turn) -> absl::StatusOr<bool> {
                        ASSIGN_OR_RETURN(
                            const int64_t sum,
                            turn.hub.store().Add(request->key(), request->delta(), turn.hub.woken()));
                        reply->set_sum(sum);
                        return true;
                      }});
}

StoreService::Reactor* StoreService::Get(Context* context, const proto::GetRequest* request,
                                         proto::GetReply* reply) {
  return calls_.Start(
      context, StoreRequestCheck("Get").Key(request->key()).status(), *request,
      {.ask = [request](const StoreTurn& turn) { return turn.hub.store().Wait(turn.id, {request->key()}); },
       .answer =
           [request, reply](const StoreTurn& turn) {
             return WithContext(SetValue(turn.hub.store().Get(request->key()), turn, reply->mutable_value()),
                                "Get");
           }});
}

StoreService::Reactor* StoreService::TryGet(Context* context, const proto::TryGetRequest* request,
                                            proto::TryGetReply* reply) {
  return calls_.Start(
      context, StoreRequestCheck("TryGet").Key(request->key()).status(), *request,
      {.ask = [request, reply](const StoreTurn& turn) {
        const KvStore& store = turn.hub.store();
        if (!store.Contains(request->key())) return Done(absl::OkStatus());
        return Done(WithContext(SetValue(store.Get(request->key()), turn, reply->mutable_value()), "TryGet"));
      }});
}

StoreService::Reactor* StoreService::MultiGet(Context* context, const proto::MultiGetRequest* request,
                                              proto::MultiGetReply* reply) {
  return calls_.Start(
      context, CheckKeys("MultiGet", request->keys()), *request,
      {.ask = [request](
                  const StoreTurn& turn) { return turn.hub.store().Wait(turn.id, Views(request->keys())); },
       .answer = [request, reply](const StoreTurn& turn) -> absl::Status {
         ReplyRoom room(turn);
         for (const std::string& key : request->keys()) {
           const absl::string_view value = turn.hub.store().Get(key);
           RETURN_IF_ERROR(room.Add(value.size()), "MultiGet");
           reply->add_values(Owned(value));
         }
         return absl::OkStatus();
       }});
}

StoreService::Reactor* StoreService::Check(Context* context, const proto::CheckRequest* request,
                                           proto::CheckReply* reply) {
  return calls_.Start(context, CheckKeys("Check", request->keys()), *request,
                      {.ask = [request, reply](const StoreTurn& turn) {
                        reply->set_ready(turn.hub.store().Ready(Views(request->keys())));
                        return true;
                      }});
}

StoreService::Reactor* StoreService::Wait(Context* context, const proto::WaitRequest* request,
                                          proto::WaitReply*) {
  return calls_.Start(context, CheckKeys("Wait", request->keys()), *request,
                      {.ask = [request](const StoreTurn& turn) {
                        return turn.hub.store().Wait(turn.id, Views(request->keys()));
                      }});
}

StoreService::Reactor* StoreService::NumKeys(Context* context, const proto::NumKeysRequest* request,
                                             proto::NumKeysReply* reply) {
  return calls_.Start(context, absl::OkStatus(), *request, {.ask = [reply](const StoreTurn& turn) {
                        reply->set_num_keys(turn.hub.store().NumKeys());
                        return true;
                      }});
}

StoreService::Reactor* StoreService::ListKeys(Context* context, const proto::ListKeysRequest* request,
                                              proto::ListKeysReply* reply) {
  return calls_.Start(context, absl::OkStatus(), *request, {.ask = [reply](const StoreTurn& turn) {
                        absl::Status status;
                        ReplyRoom room(turn);
                        turn.hub.store().ForEachKey([&](absl::string_view key) {
                          if (status.ok()) status = WithContext(room.Add(key.size()), "ListKeys");
                          if (status.ok()) reply->add_keys(Owned(key));
                        });
                        return Done(status);
                      }});
}

StoreService::Reactor* StoreService::DeleteKey(Context* context, const proto::DeleteKeyRequest* request,
                                               proto::DeleteKeyReply* reply) {
  return calls_.Start(context, StoreRequestCheck("DeleteKey").Key(request->key()).status(), *request,
                      {.ask = [request, reply](const StoreTurn& turn) {
                        reply->set_existed(turn.hub.store().DeleteKey(request->key()));
                        return true;
                      }});
}

StoreService::Reactor* StoreService::QueuePush(Context* context, const proto::QueuePushRequest* request,
                                               proto::QueuePushReply*) {
  return calls_.Start(
      context, StoreRequestCheck("QueuePush").Key(request->name()).Value(request->item()).status(), *request,
      {.ask = [request](const StoreTurn& turn) {
        return Done(turn.hub.store().QueuePush(request->name(), request->item(), turn.hub.woken()));
      }});
}

StoreService::Reactor* StoreService::QueuePop(Context* context, const proto::QueuePopRequest* request,
                                              proto::QueuePopReply* reply) {
  return calls_.Start(context, StoreRequestCheck("QueuePop").Key(request->name()).status(), *request,
                      {.ask = [request, reply](const StoreTurn& turn) -> absl::StatusOr<bool> {
                        if (turn.hub.store().QueueLen(request->name()) == 0) return true;
                        // Reserves memory first, because an item removed from the queue must not be lost.
                        constexpr uint64_t kMost = c10d::ParserLimits().max_value_bytes;
                        RETURN_IF_ERROR(turn.held.Add(kMost, "a reply"), "QueuePop");
                        turn.hub.store().QueuePop(request->name(), reply->mutable_item());
                        turn.held.Remove(kMost - reply->item().size());
                        return true;
                      }});
}

StoreService::Reactor* StoreService::QueueLen(Context* context, const proto::QueueLenRequest* request,
                                              proto::QueueLenReply* reply) {
  return calls_.Start(context, StoreRequestCheck("QueueLen").Key(request->name()).status(), *request,
                      {.ask = [request, reply](const StoreTurn& turn) {
                        reply->set_num_items(turn.hub.store().QueueLen(request->name()));
                        return true;
                      }});
}

StoreService::Reactor* StoreService::Barrier(Context* context, const proto::BarrierRequest* request,
                                             proto::BarrierReply*) {
  return calls_.Start(
      context, StoreRequestCheck("Barrier").Key(request->key()).WorldSize(request->world_size()).status(),
      *request,
      {.ask =
           [request](const StoreTurn& turn) {
             return turn.hub.store().Barrier(turn.id, request->key(), request->world_size(),
                                             turn.hub.woken());
           },
       .tells_that_it_waits = true});
}

}  // namespace ddprun

#include "worker_sdk/comm/host/bootstrap.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Minimum of HostCommunicatorOptions::chunk_bytes. The option must also be at least the world size, because
// a chunk of an all-gather must have room for data of every rank.
constexpr size_t kMinChunkBytes = 4096;

// The version of everything that workers send each other or share. A change that another release would misread changes
// this.
constexpr std::string_view kProtocolVersion = "v2";

Status Validate(const HostCommunicatorOptions& o) {
  const int64_t rank = o.rank.value(), local = o.local_rank.value(), group = o.group_rank.value();
  if (o.world_size < 1 || rank < 0 || rank >= o.world_size || o.local_world_size < 1 || local < 0 ||
      local >= o.local_world_size || o.local_world_size > o.world_size || o.group_world_size < 1 ||
      group < 0 || group >= o.group_world_size || rank < local) {
    return InvalidArgumentError(StrCat("inconsistent options: rank ", rank, " of ", o.world_size,
                                       ", local rank ", local, " of ", o.local_world_size, ", node ", group,
                                       " of ", o.group_world_size));
  }
  if (o.chunk_bytes % 64 != 0 || o.chunk_bytes < std::max<size_t>(kMinChunkBytes, o.world_size)) {
    return InvalidArgumentError(StrCat(
        "chunk_bytes must be a multiple of 64, at least 4096 and at least the world size: ", o.chunk_bytes));
  }
  return OkStatus();
}

class Bootstrapper {
 public:
  Bootstrapper(const HostCommunicatorOptions& options, Store* store)
      : o_(options),
        store_(store),
        rank_(static_cast<int>(options.rank.value())),
        local_(static_cast<int>(options.local_rank.value())),
        group_(static_cast<int>(options.group_rank.value())),
        run_id_hash_(HashRunId(options.run_id)),
        deadline_(DeadlineAfter(options.setup_timeout)) {}

  StatusOr<Links> Run() {
    std::optional<Listener> hub_listener, lane_listener;
    if (is_hub() && o_.local_world_size > 1) {
      DDPRUN_ASSIGN_OR_RETURN(hub_listener, Listener::Unix());
    }
    if (o_.group_world_size > 1) {
      DDPRUN_ASSIGN_OR_RETURN(lane_listener, Listener::Tcp(o_.address));
    }
    DDPRUN_RETURN_IF_ERROR(Publish(hub_listener, lane_listener));
    DDPRUN_RETURN_IF_ERROR(ReadNodes());

    const SegmentLayout layout{.round = o_.round.value(),
                               .num_ranks = o_.local_world_size,
                               .num_lanes = topology_.num_lanes(),
                               .chunk_bytes = o_.chunk_bytes};
    std::optional<Segment> segment;
    if (is_hub()) {
      DDPRUN_ASSIGN_OR_RETURN(segment, Segment::Create(layout));
      if (hub_listener) DDPRUN_RETURN_IF_ERROR(AcceptLocal(*hub_listener, segment->fd()));
    } else {
      DDPRUN_ASSIGN_OR_RETURN(UniqueFd memory, JoinHub());
      DDPRUN_ASSIGN_OR_RETURN(segment, Segment::Map(std::move(memory), layout));
    }
    segment->Join(local_);
    if (lane_listener && is_lane()) DDPRUN_RETURN_IF_ERROR(MeetOtherNodes(*lane_listener));
    return Links{std::move(topology_), *std::move(segment), std::move(watched_), std::move(lane_)};
  }

 private:
  bool is_hub() const { return local_ == 0; }
  bool is_lane() const { return local_ < topology_.num_lanes(); }
  Duration TimeLeft() const { return std::max<Duration>(Duration::zero(), deadline_ - Clock::now()); }
  int LaneOf(int node) const { return topology_.nodes[node].lo + local_; }

  Greeting GreetingTo(LinkKind kind, int to, const Token& token) const {
    return {.kind = kind,
            .from = rank_,
            .to = to,
            .round = o_.round.value(),
            .run_id_hash = run_id_hash_,
            .token = token};
  }

  // Returns true if `greeting` is addressed to this rank in this round and comes from a process that can read
  // the store.
  bool IsMeantForUs(const Greeting& greeting) const {
    return greeting.to == rank_ && greeting.round == o_.round.value() &&
           greeting.run_id_hash == run_id_hash_ && greeting.token == token_;
  }

  Status Publish(const std::optional<Listener>& hub, const std::optional<Listener>& lane) {
    // A single rank has no peers, and `store_` may be null.
    if (o_.world_size == 1) return OkStatus();
    if (lane) {
      DDPRUN_ASSIGN_OR_RETURN(token_, NewToken());
      DDPRUN_RETURN_IF_ERROR(
          store_->Set(StrCat("rank/", rank_), StrCat(lane->address(), " ", TokenToHex(token_))));
    }
    if (!is_hub()) return OkStatus();
    return store_->Set(StrCat("node/", group_), StrCat(kProtocolVersion, " ", rank_, " ", o_.local_world_size,
                                                       " ", o_.chunk_bytes, " ", hub ? hub->address() : "-"));
  }

  Status ReadNodes() {
    if (o_.world_size == 1) {
      topology_.nodes = {{0, 1}};
      return OkStatus();
    }
    int next_rank = 0;
    for (int g = 0; g < o_.group_world_size; ++g) {
      DDPRUN_ASSIGN_OR_RETURN(const std::string entry, store_->Get(StrCat("node/", g), TimeLeft()),
                              StrCat("the first rank of node ", g, " (rank ", next_rank, " of round ",
                                     o_.round.value(), ") did not appear"));
      const std::vector<std::string> words = StrSplit(entry, ' ');
      if (words[0] != kProtocolVersion) {
        return InvalidArgumentError(
            StrCat("node ", g, " (rank ", next_rank, " of round ", o_.round.value(),
                   ") has another version of the protocol between workers: it published \"", entry,
                   "\", this rank has version ", kProtocolVersion,
                   ": use the same release of libddprun for all workers of a job"));
      }
      const int count = words.size() == 5 ? ParseNumber<int>(words[2]).value_or(0) : 0;
      if (count < 1 || ParseNumber<int>(words[1]) != next_rank ||
          ParseNumber<size_t>(words[3]) != o_.chunk_bytes) {
        return InvalidArgumentError(StrCat("node ", g, " is inconsistent: it published \"", entry,
                                           "\", expected first rank ", next_rank, " and chunks of ",
                                           o_.chunk_bytes, " bytes"));
      }
      topology_.nodes.push_back({next_rank, next_rank + count});
      if (g == group_) hub_name_ = words[4];
      next_rank += count;
    }
    const RankRange mine = topology_.nodes[group_];
    if (next_rank != o_.world_size || mine.lo + local_ != rank_ || mine.size() != o_.local_world_size) {
      return InvalidArgumentError(
          StrCat("the ranks that the nodes published are inconsistent with the options of rank ", rank_));
    }
    return OkStatus();
  }

  Status AcceptLocal(Listener& listener, int segment_fd) {
    std::set<int> missing;
    for (int r = rank_ + 1; r < rank_ + o_.local_world_size; ++r) missing.insert(r);
    Status met =
        listener.Accept(o_.local_world_size - 1, deadline_, [&](const Greeting& greeting, UniqueFd& fd) {
          // No token is needed: Accept has checked the peer's user, and the socket's name is unguessable.
          if (greeting.kind != LinkKind::kLocal || greeting.to != rank_ ||
              greeting.round != o_.round.value() || greeting.run_id_hash != run_id_hash_ ||
              !missing.contains(greeting.from)) {
            return false;
          }
          if (!Answer(fd, GreetingTo(LinkKind::kLocal, greeting.from, {}), segment_fd).ok()) return false;
          missing.erase(greeting.from);
          watched_.push_back({.fd = std::move(fd), .rank = greeting.from, .on_other_node = false});
          return true;
        });
    return Explain(std::move(met), missing);
  }

  StatusOr<UniqueFd> JoinHub() {
    const int hub = topology_.nodes[group_].lo;
    UniqueFd memory;
    DDPRUN_ASSIGN_OR_RETURN(UniqueFd fd,
                            ConnectUnix(hub_name_, GreetingTo(LinkKind::kLocal, hub, {}), deadline_, &memory),
                            StrCat("joining rank ", hub, " of round ", o_.round.value()));
    if (!memory) return InternalError("the hub sent no segment");
    watched_.push_back({.fd = std::move(fd), .rank = hub, .on_other_node = false});
    return memory;
  }

  Status MeetOtherNodes(Listener& listener) {
    lane_.resize(topology_.num_nodes());
    for (int g = 0; g < topology_.num_nodes(); ++g) lane_[g].rank = LaneOf(g);
    for (int g = 0; g < group_; ++g) DDPRUN_RETURN_IF_ERROR(ConnectToNode(g));
    return AcceptLaterNodes(listener);
  }

  Status ConnectToNode(int node) {
    const int peer = LaneOf(node);
    const std::string who = StrCat("joining rank ", peer, " of round ", o_.round.value());
    DDPRUN_ASSIGN_OR_RETURN(const std::string entry, store_->Get(StrCat("rank/", peer), TimeLeft()), who);
    const std::vector<std::string> words = StrSplit(entry, ' ');
    if (words.size() != 3) return InvalidArgumentError(StrCat(who, ": bad address: ", entry));
    DDPRUN_ASSIGN_OR_RETURN(const Token token, TokenFromHex(words[2]), who);
    const std::string address = StrCat(words[0], " ", words[1]);
    DDPRUN_ASSIGN_OR_RETURN(UniqueFd data,
                            ConnectTcp(address, GreetingTo(LinkKind::kLane, peer, token), deadline_), who);
    KeepLink(LinkKind::kLane, node, std::move(data));
    if (!is_hub()) return OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(UniqueFd control,
                            ConnectTcp(address, GreetingTo(LinkKind::kControl, peer, token), deadline_), who);
    KeepLink(LinkKind::kControl, node, std::move(control));
    return OkStatus();
  }

  Status AcceptLaterNodes(Listener& listener) {
    std::set<std::pair<LinkKind, int>> missing;
    for (int g = group_ + 1; g < topology_.num_nodes(); ++g) {
      missing.insert({LinkKind::kLane, LaneOf(g)});
      if (is_hub()) missing.insert({LinkKind::kControl, LaneOf(g)});
    }
    Status met = listener.Accept(
        static_cast<int>(missing.size()), deadline_, [&](const Greeting& greeting, UniqueFd& fd) {
          if (!IsMeantForUs(greeting) || !missing.contains({greeting.kind, greeting.from})) return false;
          if (!Answer(fd, GreetingTo(greeting.kind, greeting.from, greeting.token), -1).ok()) return false;
          missing.erase({greeting.kind, greeting.from});
          int node = group_ + 1;
          while (LaneOf(node) != greeting.from) ++node;
          KeepLink(greeting.kind, node, std::move(fd));
          return true;
        });
    std::set<int> ranks;
    for (const auto& [kind, rank] : missing) ranks.insert(rank);
    return Explain(std::move(met), ranks);
  }

  void KeepLink(LinkKind kind, int node, UniqueFd fd) {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::string ends = EndsInWords(fd.get(), group_, node);
    // Hubs always read what other hubs send; a lane reads only when it needs the data.
    WatchLink(fd.get(), o_.silence_limit, /*in_flight=*/kind == LinkKind::kControl);
    if (kind == LinkKind::kLane) {
      lane_[node].fd = std::move(fd);
      lane_[node].ends = std::move(ends);
    } else {
      watched_.push_back(
          {.fd = std::move(fd), .rank = LaneOf(node), .on_other_node = true, .ends = std::move(ends)});
    }
  }

  Status Explain(Status met, const std::set<int>& missing) const {
    if (!IsDeadlineExceeded(met)) return met;
    return DeadlineExceededError(StrCat("rank ", *missing.begin(), " of round ", o_.round.value(),
                                        " did not appear within ", ToMillis(o_.setup_timeout), " ms (",
                                        missing.size(), " missing)"));
  }

  const HostCommunicatorOptions& o_;
  Store* const store_;
  const int rank_, local_, group_;
  const uint64_t run_id_hash_;
  const TimePoint deadline_;
  Token token_ = {};
  std::string hub_name_;
  Topology topology_;
  std::vector<Monitor::Peer> watched_;
  std::vector<TcpMesh::Peer> lane_;
};

}  // namespace

StatusOr<Links> Bootstrap(const HostCommunicatorOptions& options, Store* store) {
  DDPRUN_RETURN_IF_ERROR(Validate(options));
  return Bootstrapper(options, store).Run();
}

}  // namespace ddprun

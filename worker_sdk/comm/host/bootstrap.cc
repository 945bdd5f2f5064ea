#include "worker_sdk/comm/host/bootstrap.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/memory_room.h"
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
constexpr std::string_view kProtocolVersion = "v6";

// Begins the entry of a node that cannot take part; the reason follows.
constexpr std::string_view kFailed = "failed ";

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
  Bootstrapper(const HostCommunicatorOptions& options, Store* store, int ended_fd)
      : o_(options),
        store_(store),
        rank_(static_cast<int>(options.rank.value())),
        local_(static_cast<int>(options.local_rank.value())),
        group_(static_cast<int>(options.group_rank.value())),
        run_id_hash_(HashRunId(options.run_id)),
        limit_{.deadline = DeadlineAfter(options.setup_timeout), .ended_fd = ended_fd} {
    topology_.world_ranks = options.world_ranks;
  }

  StatusOr<Links> Run() {
    if (is_hub()) DDPRUN_RETURN_IF_ERROR(CheckMemory());
    std::optional<Listener> hub_listener, lane_listener;
    if (is_hub() && o_.local_world_size > 1) {
      DDPRUN_ASSIGN_OR_RETURN(hub_listener, Listener::Unix());
    }
    if (o_.group_world_size > 1) {
      DDPRUN_ASSIGN_OR_RETURN(lane_listener, Listener::Tcp(o_.address));
    }
    DDPRUN_RETURN_IF_ERROR(Publish(hub_listener, lane_listener));
    DDPRUN_RETURN_IF_ERROR(ReadNodes());

    const SegmentLayout layout = LayoutFor(topology_.num_lanes());
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
    std::optional<PointToPoint::Door> door;
    if (lane_listener) door = PointToPoint::Door{*std::move(lane_listener), token_};
    return Links{std::move(topology_), *std::move(segment), std::move(watched_), std::move(lane_),
                 std::move(door)};
  }

 private:
  bool is_hub() const { return local_ == 0; }
  bool is_lane() const { return local_ < topology_.num_lanes(); }
  Duration TimeLeft() const { return std::max<Duration>(Duration::zero(), limit_.deadline - Clock::now()); }
  int LaneOf(int node) const { return topology_.nodes[node].lo + local_; }
  // "rank 3 of round 7".
  std::string NameOf(int rank) const {
    return StrCat("rank ", topology_.WorldRank(rank), " of round ", o_.round.value());
  }

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

  SegmentLayout LayoutFor(int num_lanes) const {
    return {
        .round = o_.round.value(),
        .num_ranks = o_.local_world_size,
        .num_lanes = num_lanes,
        .num_slots = o_.world_size > 1 ? kMaxSlots : 2,  // a rank alone does not wait for others
        .chunk_bytes = o_.chunk_bytes,
        .world_size = o_.world_ranks.empty() ? o_.world_size : *std::ranges::max_element(o_.world_ranks) + 1};
  }

  // Checks that the node has the memory for the segment. If not, informs the other ranks, which would wait.
  Status CheckMemory() {
    const std::string what = StrCat("the ", o_.local_world_size, " ranks of node ", group_);
    const Status room = CheckRoom(RoomOfThisProcess(o_.system_root), Segment::SizeOf(LayoutFor(1)), what);
    if (!room.ok() && o_.world_size > 1) {
      DDPRUN_RETURN_IF_ERROR(store_->Set(StrCat("node/", group_), StrCat(kFailed, room.message())));
    }
    return room;
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
      DDPRUN_ASSIGN_OR_RETURN(
          const std::string entry, store_->Get(StrCat("node/", g), TimeLeft()),
          StrCat("the first rank of node ", g, " (", NameOf(next_rank), ") did not appear"));
      if (std::string_view why = entry; ConsumePrefix(&why, kFailed)) return ResourceExhaustedError(why);
      const std::vector<std::string> words = StrSplit(entry, ' ');
      if (words[0] != kProtocolVersion) {
        return InvalidArgumentError(
            StrCat("node ", g, " (", NameOf(next_rank),
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
        listener.Accept(o_.local_world_size - 1, limit_, [&](const Greeting& greeting, UniqueFd& fd) {
          // No token is needed: Accept has checked the peer's user, and the socket's name is unguessable.
          if (greeting.kind != LinkKind::kLocal || greeting.to != rank_ ||
              greeting.round != o_.round.value() || greeting.run_id_hash != run_id_hash_ ||
              !missing.contains(greeting.from)) {
            return false;
          }
          if (!Answer(fd, GreetingTo(LinkKind::kLocal, greeting.from, {}), segment_fd).ok()) return false;
          missing.erase(greeting.from);
          watched_.push_back(
              {.fd = std::move(fd), .rank = topology_.WorldRank(greeting.from), .on_other_node = false});
          return true;
        });
    return Explain(std::move(met), missing);
  }

  StatusOr<UniqueFd> JoinHub() {
    const int hub = topology_.nodes[group_].lo;
    UniqueFd memory;
    DDPRUN_ASSIGN_OR_RETURN(UniqueFd fd,
                            ConnectUnix(hub_name_, GreetingTo(LinkKind::kLocal, hub, {}), limit_, &memory),
                            StrCat("joining ", NameOf(hub)));
    if (!memory) return InternalError("the hub sent no segment");
    watched_.push_back({.fd = std::move(fd), .rank = topology_.WorldRank(hub), .on_other_node = false});
    return memory;
  }

  Status MeetOtherNodes(Listener& listener) {
    lane_.resize(topology_.num_nodes());
    for (int g = 0; g < topology_.num_nodes(); ++g) lane_[g].rank = topology_.WorldRank(LaneOf(g));
    for (int g = 0; g < group_; ++g) DDPRUN_RETURN_IF_ERROR(ConnectToNode(g));
    return AcceptLaterNodes(listener);
  }

  // The connections of this rank to its counterpart on each other node.
  std::vector<LinkKind> LinksBetweenNodes() const {
    std::vector<LinkKind> kinds = {LinkKind::kLane, LinkKind::kSecondLane};
    if (is_hub()) kinds.push_back(LinkKind::kControl);
    return kinds;
  }

  Status ConnectToNode(int node) {
    const int peer = LaneOf(node);
    const std::string who = StrCat("joining ", NameOf(peer));
    DDPRUN_ASSIGN_OR_RETURN(const std::string entry, store_->Get(StrCat("rank/", peer), TimeLeft()), who);
    const std::vector<std::string> words = StrSplit(entry, ' ');
    if (words.size() != 3) return InvalidArgumentError(StrCat(who, ": bad address: ", entry));
    DDPRUN_ASSIGN_OR_RETURN(const Token token, TokenFromHex(words[2]), who);
    const std::string address = StrCat(words[0], " ", words[1]);
    for (const LinkKind kind : LinksBetweenNodes()) {
      DDPRUN_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTcp(address, GreetingTo(kind, peer, token), limit_), who);
      KeepLink(kind, node, std::move(fd));
    }
    return OkStatus();
  }

  Status AcceptLaterNodes(Listener& listener) {
    std::set<std::pair<LinkKind, int>> missing;
    for (int g = group_ + 1; g < topology_.num_nodes(); ++g) {
      for (const LinkKind kind : LinksBetweenNodes()) missing.insert({kind, LaneOf(g)});
    }
    Status met = listener.Accept(
        static_cast<int>(missing.size()), limit_, [&](const Greeting& greeting, UniqueFd& fd) {
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
    if (kind != LinkKind::kControl) {
      lane_[node].fds[kind == LinkKind::kLane ? 0 : 1] = std::move(fd);
      lane_[node].ends = std::move(ends);
    } else {
      watched_.push_back({.fd = std::move(fd),
                          .rank = topology_.WorldRank(LaneOf(node)),
                          .on_other_node = true,
                          .ends = std::move(ends)});
    }
  }

  Status Explain(Status met, const std::set<int>& missing) const {
    if (!IsDeadlineExceeded(met)) return met;
    return DeadlineExceededError(StrCat(NameOf(*missing.begin()), " did not appear within ",
                                        ToMillis(o_.setup_timeout), " ms (", missing.size(), " missing)"));
  }

  const HostCommunicatorOptions& o_;
  Store* const store_;
  const int rank_, local_, group_;
  const uint64_t run_id_hash_;
  const SetupLimit limit_;
  Token token_ = {};
  std::string hub_name_;
  Topology topology_;
  std::vector<Monitor::Peer> watched_;
  std::vector<TcpMesh::Peer> lane_;
};

}  // namespace

StatusOr<Links> Bootstrap(const HostCommunicatorOptions& options, Store* store, int ended_fd) {
  DDPRUN_RETURN_IF_ERROR(Validate(options));
  return Bootstrapper(options, store, ended_fd).Run();
}

}  // namespace ddprun

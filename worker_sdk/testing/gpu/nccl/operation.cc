#include "worker_sdk/testing/gpu/nccl/operation.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <random>

#include "worker_sdk/testing/gpu/nccl/reduce.h"
#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {
namespace {

size_t Bytes(const Operation& operation) { return operation.count * SizeOf(operation.dtype); }

void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

// One collective operation on one rank. All ranks exchange a header with each other, so an operation ends nowhere before
// all ranks have started it.
class Collective {
 public:
  Collective(const Operation& operation, Mesh& mesh, uint64_t number)
      : operation_(operation), mesh_(mesh), number_(number) {}

  Outcome Run(const Cancel& cancel) {
    Messages messages;
    contributions_.resize(mesh_.num_ranks());
    for (int peer = 0; peer < mesh_.num_ranks(); ++peer) {
      if (peer == mesh_.rank()) continue;
      messages.outgoing.push_back({peer, HeaderOf(mesh_.rank(), peer), PartFor(peer)});
      messages.incoming.push_back({peer, HeaderOf(peer, mesh_.rank()), PlaceFor(peer)});
    }
    const Outcome outcome = mesh_.Exchange(messages, cancel);
    if (outcome == Outcome::kDone) Finish();
    return outcome;
  }

 private:
  bool reduces() const {
    return operation_.kind == Kind::kAllReduce || operation_.kind == Kind::kReduce ||
           operation_.kind == Kind::kReduceScatter;
  }

  Header HeaderOf(int from, int to) const {
    const Kind kind = operation_.kind;
    const bool has_bytes = kind == Kind::kBroadcast ? from == operation_.root
                           : kind == Kind::kReduce  ? to == operation_.root
                                                    : kind != Kind::kFinalize;
    return {
        static_cast<uint32_t>(kind),      operation_.dtype, operation_.op, operation_.root, operation_.count,
        has_bytes ? Bytes(operation_) : 0};
  }

  const std::byte* PartFor(int peer) const {
    return operation_.kind == Kind::kReduceScatter ? operation_.in.view + peer * Bytes(operation_)
                                                   : operation_.in.view;
  }

  std::byte* PlaceFor(int peer) {
    if (operation_.kind == Kind::kAllGather) return operation_.out.view + peer * Bytes(operation_);
    if (operation_.kind == Kind::kBroadcast) return operation_.out.view;
    contributions_[peer].resize(HeaderOf(peer, mesh_.rank()).bytes);
    return contributions_[peer].data();
  }

  void Finish() {
    const int rank = mesh_.rank();
    const size_t bytes = Bytes(operation_);
    std::byte* const out = operation_.out.view;
    if (operation_.kind == Kind::kAllGather) Copy(out + rank * bytes, operation_.in.view, bytes);
    if (operation_.kind == Kind::kBroadcast && rank == operation_.root) Copy(out, operation_.in.view, bytes);
    if (reduces() && bytes > 0 && (operation_.kind != Kind::kReduce || rank == operation_.root)) Sum(out);
  }

  const std::byte* InputOf(int rank) {
    return rank == mesh_.rank() ? PartFor(rank) : contributions_[rank].data();
  }

  void Sum(std::byte* out) {
    if (TheSettings().tree_sums && operation_.op != ncclAvg) {
      const std::vector<std::byte> sum = TreeSum(0, mesh_.num_ranks());
      return Copy(out, sum.data(), sum.size());
    }
    std::vector<int> order(mesh_.num_ranks());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(mesh_.seed() + number_));
    std::vector<const std::byte*> inputs;
    for (const int rank : order) inputs.push_back(InputOf(rank));
    Reduce(operation_.dtype, operation_.op, operation_.count, inputs, out);
  }

  // Of the ranks lo..hi-1, along the tree of ddprun::Communicator.
  std::vector<std::byte> TreeSum(int lo, int hi) {
    if (hi - lo == 1) return {InputOf(lo), InputOf(lo) + Bytes(operation_)};
    const int mid = lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(hi - lo - 1)));
    const std::vector<std::byte> left = TreeSum(lo, mid), right = TreeSum(mid, hi);
    std::vector<std::byte> sum(left.size());
    const std::byte* const inputs[] = {left.data(), right.data()};
    Reduce(operation_.dtype, operation_.op, operation_.count, inputs, sum.data());
    return sum;
  }

  const Operation& operation_;
  Mesh& mesh_;
  const uint64_t number_;
  std::vector<std::vector<std::byte>> contributions_;  // by rank
};

// Messages of a rank to itself. False if they do not fit.
bool CopyToSelf(const std::vector<const Operation*>& messages) {
  std::vector<const Operation*> sends, receives;
  for (const Operation* m : messages) (m->kind == Kind::kSend ? sends : receives).push_back(m);
  const auto fits = [](const Operation* a, const Operation* b) {
    return a->count == b->count && a->dtype == b->dtype;
  };
  if (!std::equal(sends.begin(), sends.end(), receives.begin(), receives.end(), fits)) return false;
  for (size_t i = 0; i < sends.size(); ++i) Copy(receives[i]->out.view, sends[i]->in.view, Bytes(*sends[i]));
  return true;
}

// A send is complete when the peer receives it, because the receiver says that it is ready: programs may not rely on buffers.
Outcome RunMessages(const std::vector<Operation>& operations, Mesh& mesh, const Cancel& cancel) {
  Messages messages;
  std::vector<Outgoing> data;
  std::vector<const Operation*> to_self;
  for (const Operation& m : operations) {
    if (!m.is_message()) continue;
    const Header header{static_cast<uint32_t>(Kind::kSend), m.dtype, 0, 0, m.count, Bytes(m)};
    if (m.root == mesh.rank()) {
      to_self.push_back(&m);
    } else if (m.kind == Kind::kSend) {
      data.push_back({m.root, header, m.in.view});
      messages.ready.push_back(m.root);
    } else {
      messages.outgoing.push_back({m.root, Header{Header::kReady, 0, 0, 0, 0, 0}});
      messages.incoming.push_back({m.root, header, m.out.view});
    }
  }
  if (!CopyToSelf(to_self)) return Outcome::kDifferent;
  // First those that say that the rank is ready: a peer may receive the others with a later operation.
  messages.outgoing.insert(messages.outgoing.end(), data.begin(), data.end());
  return mesh.Exchange(messages, cancel);
}

}  // namespace

size_t BytesIn(const Operation& operation, int rank, int num_ranks) {
  switch (operation.kind) {
    case Kind::kReduceScatter:
      return Bytes(operation) * static_cast<size_t>(num_ranks);
    case Kind::kBroadcast:
      return rank == operation.root ? Bytes(operation) : 0;
    case Kind::kReceive:
    case Kind::kFinalize:
      return 0;
    default:
      return Bytes(operation);
  }
}

size_t BytesOut(const Operation& operation, int rank, int num_ranks) {
  switch (operation.kind) {
    case Kind::kAllGather:
      return Bytes(operation) * static_cast<size_t>(num_ranks);
    case Kind::kReduce:
      return rank == operation.root ? Bytes(operation) : 0;
    case Kind::kSend:
    case Kind::kFinalize:
      return 0;
    default:
      return Bytes(operation);
  }
}

Outcome Batch::Run(Mesh& mesh, uint64_t number, const Cancel& cancel) const {
  for (const Operation& operation : operations_) {
    if (operation.is_message()) continue;
    const Outcome outcome = Collective(operation, mesh, number).Run(cancel);
    if (outcome != Outcome::kDone) return outcome;
  }
  return RunMessages(operations_, mesh, cancel);
}

Outcome Barrier(Mesh& mesh, const Cancel& cancel) {
  return Collective({"", Kind::kFinalize, 0, ncclUint8, ncclSum, 0, {}, {}}, mesh, 0).Run(cancel);
}

}  // namespace ddprun::stand_in

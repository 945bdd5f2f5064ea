#include "worker_sdk/testing/gpu/nccl/rendezvous.h"

#include <unistd.h>

#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {
namespace {

constexpr uint64_t kMagic = 0x5A5A'6E63'636C'0001u;

struct Hello {
  uint64_t cookie;
  int32_t rank, num_ranks;
  Member member;
};

uint64_t Random64() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

struct Arrived {
  UniqueFd fd;
  Member member;
};

void Serve(int listener, uint64_t cookie, uint64_t seed) {
  const Cancel never;
  std::map<int, Arrived> arrived;
  int num_ranks = -1;
  // If a rank comes twice, or ranks say different numbers, all wait for ever.
  constexpr int kNever = std::numeric_limits<int>::max();
  std::vector<UniqueFd> waiting;
  while (num_ranks < 0 || static_cast<int>(arrived.size()) < num_ranks) {
    UniqueFd fd = Accept(listener, never);
    Hello hello;
    if (Read(fd, hello, never) != Outcome::kDone || hello.cookie != cookie) continue;
    if (num_ranks < 0) num_ranks = hello.num_ranks;
    if (hello.num_ranks == num_ranks && !arrived.contains(hello.rank)) {
      arrived[hello.rank] = {std::move(fd), hello.member};
    } else {
      waiting.push_back(std::move(fd));
      num_ranks = kNever;
    }
  }
  for (auto& [rank, receiver] : arrived) {
    Outcome outcome = Write(receiver.fd, seed, never);
    for (const auto& [other, entry] : arrived) {
      if (outcome == Outcome::kDone) outcome = Write(receiver.fd, entry.member, never);
    }
  }
}

}  // namespace

UniqueId StartRendezvous() {
  UniqueId id{};
  id.magic = kMagic;
  id.cookie = Random64();
  id.address = LocalAddress();
  static std::atomic<uint64_t> ids = 0;
  const uint64_t seed = TheSettings().seed + ++ids;
  std::thread([fd = Listen(id.address), cookie = id.cookie, seed] {
    Serve(fd.get(), cookie, seed);
  }).detach();
  return id;
}

bool IsValid(const UniqueId& id) { return id.magic == kMagic; }

Outcome Join(const UniqueId& id, int rank, int num_ranks, const Member& self, const Cancel& cancel,
             Membership& all) {
  const UniqueFd fd = ConnectTo(id.address, cancel);
  if (!fd) return cancel.fired() ? Outcome::kCancelled : Outcome::kPeerDied;
  Outcome outcome = Write(fd, Hello{id.cookie, rank, num_ranks, self}, cancel);
  if (outcome == Outcome::kDone) outcome = Read(fd, all.seed, cancel);
  all.members.resize(static_cast<size_t>(num_ranks));
  for (Member& member : all.members) {
    if (outcome == Outcome::kDone) outcome = Read(fd, member, cancel);
  }
  return outcome;
}

uint64_t IdOfProcess() {
  // A child of fork() that had not used NCCL before has an id of its own.
  static const uint64_t id = Random64() ^ static_cast<uint64_t>(getpid());
  return id;
}

}  // namespace ddprun::stand_in

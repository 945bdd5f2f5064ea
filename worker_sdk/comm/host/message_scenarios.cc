#include "worker_sdk/comm/host/message_scenarios.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLarge = 3 << 20;  // more than a ring and a socket's buffers

std::vector<unsigned char> Payload(uint64_t seed, size_t n) {
  std::vector<unsigned char> bytes(n);
  uint64_t x = seed * 2654435761 + 1;
  for (auto& b : bytes) {
    x = x * 6364136223846793005 + 1442695040888963407;
    b = static_cast<unsigned char>(x >> 56);
  }
  return bytes;
}

// An operation in flight, and what its buffer holds afterwards.
struct Pending {
  Work work;
  std::vector<unsigned char> buffer, expected;
  std::vector<int64_t> sums;  // of an all-reduce
  int64_t expected_sum = 0;
  std::string name;

  std::string Finish() {
    if (Status s = work.Wait(Soon()); !s.ok()) return StrCat(name, ": ", s.ToString());
    if (buffer != expected) return StrCat(name, ": wrong bytes");
    for (int64_t sum : sums) {
      if (sum != expected_sum) return StrCat(name, ": wrong sum");
    }
    return "";
  }
};

size_t RandomSize(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return random() % kLarge;
    case 2:
      return random() % 70000;
    default:
      return random() % 5000;
  }
}

// message-random <seed> <count>: all ranks know one list of messages between random pairs and of all-reduces. Each rank
// starts its part of the list in order, with up to eight operations in flight, and waits for them in random order.
int RandomMessages(const RankProcess& self, Communicator& comm) {
  const int rank = comm.rank(), world = comm.size();
  std::mt19937 random(std::stoi(self.args[1]));                                   // equal on all ranks
  std::mt19937 own(static_cast<unsigned>(std::stoi(self.args[1]) * 100 + rank));  // of this rank
  const int count = std::stoi(self.args[2]);
  std::vector<Pending> in_flight;
  for (int i = 0; i <= count; ++i) {
    const bool is_sum = random() % 10 == 0;
    const int from = static_cast<int>(random() % world);
    const int to = (from + 1 + static_cast<int>(random() % (world - 1))) % world;
    const size_t size = RandomSize(random);
    if (i < count && is_sum) {
      Pending& p = in_flight.emplace_back();
      p.name = StrCat("all-reduce ", i);
      p.sums.assign(size / 16, rank + i);
      p.expected_sum = static_cast<int64_t>(world) * (world - 1) / 2 + static_cast<int64_t>(i) * world;
    } else if (i < count && (from == rank || to == rank)) {
      Pending& p = in_flight.emplace_back();
      p.name = StrCat("message ", i, " from ", from, " to ", to, " of ", size);
      p.expected = Payload(i, size);
      p.buffer = from == rank ? p.expected : std::vector<unsigned char>(size);
    } else if (i < count) {
      continue;
    }
    if (i < count) {
      Pending& p = in_flight.back();
      // The vectors' elements stay where they are if `in_flight` grows.
      if (is_sum) {
        p.work = comm.AllReduce(View(p.sums), ReduceOp::kSum);
      } else {
        p.work = from == rank ? comm.Send(View(p.buffer), to) : comm.Receive(View(p.buffer), from);
      }
      if (in_flight.size() < 1 + own() % 8) continue;
    }
    std::shuffle(in_flight.begin(), in_flight.end(), own);
    for (Pending& p : in_flight) {
      if (std::string fault = p.Finish(); !fault.empty()) return Fail(self, fault);
    }
    in_flight.clear();
  }
  return 0;
}

// message-ring: every rank sends to the next rank, and starts to receive from the previous one only then.
int ExchangeInARing(const RankProcess& self, Communicator& comm) {
  const int rank = comm.rank(), world = comm.size();
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{8}, size_t{4096}, size_t{300000}, kLarge}) {
    const std::vector<unsigned char> out = Payload(rank, n), expected = Payload(previous, n);
    std::vector<unsigned char> in(n), in_again(n);
    Work works[] = {comm.Send(View(out), next), comm.Send(View(out), next), comm.Receive(View(in), previous),
                    comm.Receive(View(in_again), previous)};
    for (Work& work : works) {
      if (Status s = work.Wait(Soon()); !s.ok()) return Fail(self, StrCat(s.ToString(), " of ", n));
    }
    if (in != expected || in_again != expected) return Fail(self, StrCat("wrong bytes of ", n));
  }
  return 0;
}

// message-overlap: rank 0 waits for a barrier that the last rank starts only when it has a large message of rank 0.
int WaitForABarrierMeanwhile(const RankProcess& self, Communicator& comm) {
  const int last = comm.size() - 1;
  std::vector<unsigned char> bytes = Payload(1, kLarge), expected = bytes;
  Work message;
  if (comm.rank() == last) {
    bytes.assign(kLarge, 0);
    if (Status s = comm.Receive(View(bytes), 0).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    if (bytes != expected) return Fail(self, "wrong bytes");
  }
  Work barrier = comm.Barrier();
  if (comm.rank() == 0) message = comm.Send(View(bytes), last);
  if (Status s = barrier.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  if (comm.rank() != 0) return 0;
  const Status sent = message.Wait(Soon());
  return sent.ok() ? 0 : Fail(self, sent.ToString());
}

// message-background: no thread of rank 0 waits while the last rank receives from it.
int SendInTheBackground(const RankProcess& self, Communicator& comm) {
  FakeFileStore store(self.store_dir);
  const int last = comm.size() - 1;
  std::vector<unsigned char> bytes = Payload(1, kLarge);
  if (comm.rank() == 0) {
    Work sent = comm.Send(View(bytes), last);
    if (const auto received = store.Get("received", seconds(60)); !received.ok())
      return Fail(self, received.status().ToString());
    if (Status s = sent.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  } else if (comm.rank() == last) {
    std::vector<unsigned char> in(kLarge);
    if (Status s = comm.Receive(View(in), 0).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    if (in != bytes) return Fail(self, "wrong bytes");
    (void)store.Set("received", "");
  }
  const Status s = comm.Barrier().Wait(Soon());
  return s.ok() ? 0 : Fail(self, s.ToString());
}

// message-differ: message 1 from rank 0 to the last rank has different sizes at its ends. The other ranks wait in a
// barrier.
int DifferInSize(const RankProcess& self, Communicator& comm) {
  const int last = comm.size() - 1;
  std::vector<float> values(1000, 1.0f);
  MeetInStore(self);
  if (comm.rank() == 0) {
    if (Status s = comm.Send(View(values), last).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    Work differs = comm.Send(View(values), last);
    return Report(self, comm.Receive(View(values), last).Wait(Soon()));
  }
  if (comm.rank() == last) {
    if (Status s = comm.Receive(View(values), 0).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    return Report(self, comm.Receive(View(std::span(values).first(999)), 0).Wait(Soon()));
  }
  return Report(self, comm.Barrier().Wait(Soon()));
}

// message-invalid <peer>: the last rank sends to a rank that is not another rank of the group.
int SendToAnInvalidRank(const RankProcess& self, Communicator& comm) {
  std::vector<float> values(10);
  MeetInStore(self);
  if (comm.rank() != comm.size() - 1) return Report(self, comm.Barrier().Wait(Soon()));
  return Report(self, comm.Send(View(values), std::stoi(self.args[1])).Wait(Soon()));
}

// message-forever <victim> <send or receive>: rank 0, or rank 1 if rank 0 is the victim, exchanges messages with the
// victim until one fails. The other ranks wait in a barrier.
int ExchangeForever(const RankProcess& self, Communicator& comm) {
  FakeFileStore store(self.store_dir);
  const int victim = std::stoi(self.args[1]), survivor = victim == 0 ? 1 : 0;
  const bool survivor_sends = self.args[2] == "send";
  const bool takes_part = comm.rank() == victim || comm.rank() == survivor;
  if (!takes_part) (void)store.Set(StrCat("ready/", comm.rank()), "");
  std::vector<unsigned char> bytes(1 << 20);
  for (int i = 0;; ++i) {
    Work work;
    if (!takes_part) {
      work = comm.Barrier();
    } else if (comm.rank() == (survivor_sends ? survivor : victim)) {
      work = comm.Send(View(bytes), survivor_sends ? victim : survivor);
    } else {
      work = comm.Receive(View(bytes), survivor_sends ? survivor : victim);
    }
    if (takes_part && i == 3) (void)store.Set(StrCat("ready/", comm.rank()), "");
    const Status s = work.Wait(Soon());
    if (s.ok()) continue;
    const Status again = comm.Receive(View(bytes), survivor == comm.rank() ? victim : survivor).Wait(Soon());
    if (again != s) return Fail(self, StrCat("then: ", again.ToString(), ", first: ", s.ToString()));
    return Report(self, s);
  }
}

// message-stop <victim>: every rank receives from the next rank and then sends to the previous one, and so on; the
// victim stops. Rank 0 uses a short deadline from then on.
int StopInTheMiddle(const RankProcess& self, Communicator& comm) {
  constexpr int kStop = 3;
  const int victim = std::stoi(self.args[1]), last = comm.size() - 1;
  std::vector<unsigned char> bytes(1000);
  for (int i = 0;; ++i) {
    if (comm.rank() == victim && i == kStop) raise(SIGSTOP);
    const TimePoint deadline = comm.rank() == 0 && i >= kStop ? Clock::now() + milliseconds(500) : Soon();
    Status s;
    if (comm.rank() < last) s = comm.Receive(View(bytes), comm.rank() + 1).Wait(deadline);
    if (s.ok() && comm.rank() > 0) s = comm.Send(View(bytes), comm.rank() - 1).Wait(Soon());
    if (!s.ok()) return Report(self, s);
  }
}

// message-leave: the last rank sends to rank 0 and leaves. Then rank 0 receives. The others exchange messages after the
// last rank has left.
int LeaveAfterSend(const RankProcess& self, Communicator comm) {
  const int rank = comm.rank(), last = comm.size() - 1;
  const std::vector<unsigned char> sent = Payload(3, 100000);
  std::vector<unsigned char> bytes(1);
  // So that the pair is connected.
  if (rank == 0) {
    if (Status s = comm.Send(View(bytes), last).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  }
  if (rank == last) {
    if (Status s = comm.Receive(View(bytes), 0).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    if (Status s = comm.Send(View(sent), 0).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    comm = Communicator();
    return Report(self, OkStatus());
  }
  FakeFileStore store(self.store_dir);
  if (const auto go = store.Get(kGoOn, seconds(60)); !go.ok()) return Fail(self, go.status().ToString());
  bytes.assign(sent.size(), 0);
  if (rank == 0) {
    if (Status s = comm.Receive(View(bytes), last).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    if (bytes != sent) return Fail(self, "wrong bytes");
  }
  for (int r = 0; r + 1 < last; ++r) {
    Status s;
    if (rank == r) s = comm.Send(View(sent), r + 1).Wait(Soon());
    if (rank == r + 1) s = comm.Receive(View(bytes), r).Wait(Soon());
    if (!s.ok()) return Fail(self, s.ToString());
  }
  const Status receive =
      rank == 0 ? comm.Receive(View(bytes), last).Wait(Soon()) : comm.Send(View(sent), last).Wait(Soon());
  const Status later = comm.Barrier().Wait(Soon());
  if (later != receive) return Fail(self, StrCat("then: ", later.ToString()));
  return Report(self, receive);
}

// message-late: the last rank leaves. The others wait for a message that it never sends.
int WaitForALeaver(const RankProcess& self, Communicator comm) {
  std::vector<unsigned char> bytes(10);
  const int last = comm.size() - 1;
  if (comm.rank() == last) {
    MeetInStore(self);
    return Report(self, OkStatus());
  }
  Work work = comm.Receive(View(bytes), last);
  MeetInStore(self);
  return Report(self, work.Wait(Soon()));
}

// message-leave-twice: the last rank leaves, then the one before it. The others wait for a message of that one.
int WaitForTheSecondLeaver(const RankProcess& self, Communicator comm) {
  FakeFileStore store(self.store_dir);
  std::vector<unsigned char> bytes(10);
  const int last = comm.size() - 1;
  if (comm.rank() < last - 1) {
    Work work = comm.Receive(View(bytes), last - 1);
    MeetInStore(self);
    return Report(self, work.Wait(Soon()));
  }
  MeetInStore(self);
  if (comm.rank() == last - 1) {
    if (const auto left = store.Get("left", seconds(60)); !left.ok())
      return Fail(self, left.status().ToString());
  }
  const bool is_last = comm.rank() == last;
  comm = Communicator();
  if (is_last) (void)store.Set("left", "");
  return Report(self, OkStatus());
}

// message-unreported <waiter> <awaited> <leaver>...: the leavers leave. Then the waiter waits for a message of a rank of
// another node, which the test kills, or which leaves when it sees kGoOn.
int WaitForAnUnreportedRank(const RankProcess& self, Communicator comm) {
  FakeFileStore store(self.store_dir);
  const int rank = comm.rank(), waiter = std::stoi(self.args[1]);
  const std::vector<std::string> leavers(self.args.begin() + 3, self.args.end());
  MeetInStore(self);
  if (std::ranges::find(leavers, StrCat(rank)) != leavers.end()) {
    comm = Communicator();
    (void)store.Set(StrCat("left/", rank), "");
    return Report(self, OkStatus());
  }
  for (const std::string& leaver : leavers) {
    if (const auto left = store.Get(StrCat("left/", leaver), seconds(60)); !left.ok())
      return Fail(self, left.status().ToString());
  }
  std::vector<unsigned char> bytes(10);
  if (rank == waiter) {
    Work work = comm.Receive(View(bytes), std::stoi(self.args[2]));
    (void)store.Set("waits", "");
    return Report(self, work.Wait(Soon()));
  }
  if (const auto go = store.Get(kGoOn, seconds(60)); !go.ok()) return Fail(self, go.status().ToString());
  comm = Communicator();
  return Report(self, OkStatus());
}

// message-connect: the ranks meet, wait for kGoOn, and exchange a message with every other rank.
int ConnectAllPairs(const RankProcess& self, Communicator& comm) {
  FakeFileStore store(self.store_dir);
  (void)store.Set(StrCat("ready/", comm.rank()), "");
  if (const auto go = store.Get(kGoOn, seconds(60)); !go.ok()) return Fail(self, go.status().ToString());
  std::vector<std::vector<unsigned char>> in(comm.size(), std::vector<unsigned char>(1000));
  std::vector<Work> works;
  const std::vector<unsigned char> out = Payload(comm.rank(), 1000);
  for (int r = 0; r < comm.size(); ++r) {
    if (r == comm.rank()) continue;
    works.push_back(comm.Receive(View(in[r]), r));
    works.push_back(comm.Send(View(out), r));
  }
  for (Work& work : works) {
    if (Status s = work.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  }
  for (int r = 0; r < comm.size(); ++r) {
    if (r != comm.rank() && in[r] != Payload(r, 1000)) return Fail(self, "wrong bytes");
  }
  return 0;
}

}  // namespace

int RunMessageScenario(const RankProcess& self, Communicator comm) {
  const std::string& what = self.args[0];
  if (what == "message-random") return RandomMessages(self, comm);
  if (what == "message-ring") return ExchangeInARing(self, comm);
  if (what == "message-overlap") return WaitForABarrierMeanwhile(self, comm);
  if (what == "message-background") return SendInTheBackground(self, comm);
  if (what == "message-differ") return DifferInSize(self, comm);
  if (what == "message-invalid") return SendToAnInvalidRank(self, comm);
  if (what == "message-forever") return ExchangeForever(self, comm);
  if (what == "message-stop") return StopInTheMiddle(self, comm);
  if (what == "message-leave") return LeaveAfterSend(self, std::move(comm));
  if (what == "message-late") return WaitForALeaver(self, std::move(comm));
  if (what == "message-leave-twice") return WaitForTheSecondLeaver(self, std::move(comm));
  if (what == "message-unreported") return WaitForAnUnreportedRank(self, std::move(comm));
  if (what == "message-connect") return ConnectAllPairs(self, comm);
  return Fail(self, StrCat("there is no scenario ", what));
}

}  // namespace ddprun

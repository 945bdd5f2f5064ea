// Tests Fabric::Retire. The ranks are threads of this process; each has a fabric of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;  // ranks 0 and 1 on one node, rank 2 on another
constexpr int64_t kCount = 50000;

TimePoint Soon() { return Clock::now() + seconds(60); }

Status OverFor(int rank) {
  return AbortedError(StrCat("rank ", rank, " of round 7 gave up: the round is over"));
}

// What /proc says about this process.
int NumThreads() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}
std::multiset<std::string> Descriptors() {
  std::multiset<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of the iterator itself
    std::string name = fs::read_symlink(entry.path(), gone);
    if (name.starts_with("socket:") || name.starts_with("pipe:")) name.resize(name.find(':'));  // no numbers
    if (name.find("/proc/") == std::string::npos) found.insert(std::move(name));
  }
  return found;
}
// The sizes of the mappings of memory that ranks share.
std::vector<size_t> SharedMappings() {
  std::vector<size_t> sizes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("ddprun-comm") == std::string::npos) continue;
    const size_t dash = line.find('-');
    sizes.push_back(std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line, nullptr, 16));
  }
  return sizes;
}
bool IsAccessible(const void* address) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

// Returns once `holds`; the kernel removes a thread that was joined a little later.
void Eventually(const std::function<bool()>& holds, const std::string& what) {
  const TimePoint deadline = Soon();
  while (!holds()) {
    ASSERT_LT(Clock::now(), deadline) << what;
    poll(nullptr, 0, 1);
  }
}

struct RankState {
  std::shared_ptr<Fabric> fabric = std::make_shared<Fabric>();
  Communicator world;
};

class RetireTest : public testing::Test {
 protected:
  void SetUp() override {
    std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first one
    dir_ = testing::TempDir() + "/retire.XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
  }
  ~RetireTest() override { fs::remove_all(dir_); }

  // Calls `body` on a thread for each rank.
  static void ForAll(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) threads.emplace_back(body, r);
    for (std::thread& t : threads) t.join();
  }

  void Connect() {
    const std::string dir = StrCat(dir_, "/", num_connects_++);
    ASSERT_TRUE(fs::create_directory(dir));
    ForAll([&](int rank) {
      FakeFileStore store(dir);
      ranks_[rank] = std::make_unique<RankState>();
      auto group = CreateHostGroup({.rank = Rank(rank),
                                    .world_size = kRanks,
                                    .local_rank = LocalRank(rank % 2),
                                    .local_world_size = rank < 2 ? 2 : 1,
                                    .group_rank = GroupRank(rank / 2),
                                    .group_world_size = 2,
                                    .round = Round(7),
                                    .chunk_bytes = 4096},
                                   &store, ranks_[rank]->fabric);
      ASSERT_TRUE(group.ok()) << group.status();
      ranks_[rank]->world = Communicator(*std::move(group));
    });
  }
  void Retire(int rank) { ranks_[rank]->fabric->Retire(OverFor(rank)); }
  Communicator& world(int rank) { return ranks_[rank]->world; }

  std::array<std::unique_ptr<RankState>, kRanks> ranks_;

 private:
  std::string dir_;
  int num_connects_ = 0;
};

void ExpectHusk(Communicator& group, int rank, int size) {
  EXPECT_EQ(group.rank(), rank);
  EXPECT_EQ(group.size(), size);
  const Status end = group.status();
  EXPECT_EQ(end.code(), StatusCode::kAborted) << end;
  EXPECT_THAT(end.message(), HasSubstr("gave up: the round is over"));
  std::vector<float> values(5000, 1);
  for (const size_t n : {size_t{1}, values.size()}) {
    const Tensor some{values.data(), static_cast<int64_t>(n), DType::kFloat32};
    EXPECT_EQ(group.AllReduce(some, ReduceOp::kSum).Wait(), end);
    EXPECT_EQ(group.Broadcast(some, 0).Wait(), end);
    EXPECT_EQ(group.Send(some, (rank + 1) % size).Wait(), end);
    EXPECT_EQ(group.Receive(some, (rank + 1) % size).Wait(), end);
  }
  EXPECT_EQ(group.Barrier().Wait(Clock::now() - seconds(1)), end);
  EXPECT_EQ(group.AllReduce({nullptr, 3, DType::kFloat32}, ReduceOp::kSum).Wait(), end);  // refused
  EXPECT_EQ(group.Allocate(DType::kFloat32, 3).status(), WithContext(end, "allocate"));
  EXPECT_EQ(group.Split(0).status(), WithContext(end, "split"));
  group.Abort("too late");
  EXPECT_EQ(group.status(), end);
}

// Uses everything that a group may create: a part of the world, memory, lanes, messages on a node and between nodes.
void UseAll(Communicator& world, Communicator* group, Buffer* buffer) {
  StatusOr<Communicator> split = world.Split(0, -world.rank());
  ASSERT_TRUE(split.ok()) << split.status();
  *group = *std::move(split);
  StatusOr<Buffer> memory = world.Allocate(DType::kInt32, kCount);
  ASSERT_TRUE(memory.ok()) << memory.status();
  *buffer = *std::move(memory);
  auto* values = static_cast<int32_t*>(buffer->tensor().data);
  for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<int32_t>(i);
  for (Communicator* each : {&world, group}) {
    ASSERT_EQ(each->AllReduce(buffer->tensor(), ReduceOp::kSum).Wait(Soon()), OkStatus());
    const int next = (each->rank() + 1) % kRanks, before = (each->rank() + kRanks - 1) % kRanks;
    std::vector<int32_t> received(kCount);
    Work sent = each->Send(buffer->tensor(), next);
    ASSERT_EQ(each->Receive(View(received), before).Wait(Soon()), OkStatus());
    ASSERT_EQ(sent.Wait(Soon()), OkStatus());
  }
}

TEST_F(RetireTest, ThreadsConnectionsAndSharedMemoryAreGone) {
  (void)internal::OperationPageFd();  // it exists until the process exits
  const int num_threads = NumThreads();
  const std::multiset<std::string> descriptors = Descriptors();
  ASSERT_TRUE(SharedMappings().empty());
  Connect();
  std::array<Communicator, kRanks> groups;
  std::array<Buffer, kRanks> buffers;
  ForAll([&](int r) { UseAll(world(r), &groups[r], &buffers[r]); });
  EXPECT_GT(NumThreads(), num_threads);
  EXPECT_GT(SharedMappings().size(), 2u);
  ForAll([&](int r) { Retire(r); });

  Eventually([&] { return NumThreads() == num_threads; }, "threads");
  std::multiset<std::string> left = Descriptors();
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_NE(left.find("anon_inode:[eventfd]"), left.end());
    left.erase(left.find("anon_inode:[eventfd]"));
  }
  EXPECT_EQ(left, descriptors);
  // The own parts of the two ranks on one node.
  const std::vector<size_t> mappings = SharedMappings();
  EXPECT_EQ(mappings.size(), 2u);
  for (const size_t size : mappings) EXPECT_LT(size, 4 * kCount + 2 * 4096);
  for (int r = 0; r < kRanks; ++r) {
    auto* values = static_cast<int32_t*>(buffers[r].tensor().data);
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], static_cast<int32_t>(i * kRanks * kRanks)) << "rank " << r;
      values[i] = r;
    }
    if (r < 2) {
      EXPECT_FALSE(IsAccessible(reinterpret_cast<char*>(values) - 1));
    }
    ExpectHusk(world(r), r, kRanks);
    ExpectHusk(groups[r], kRanks - 1 - r, kRanks);
  }
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(static_cast<int32_t*>(buffers[r].tensor().data)[kCount - 1], r) << "parts are not shared";
    buffers[r] = Buffer();
  }
  EXPECT_TRUE(SharedMappings().empty());
  groups = {};
  for (auto& rank : ranks_) rank.reset();
  EXPECT_EQ(Descriptors(), descriptors);
  EXPECT_EQ(NumThreads(), num_threads);
}

// The others learn why, also if the rank that is retired is the hub of its node, and all of it is gone before they look.
TEST_F(RetireTest, RanksThatAreRetiredLaterHaveTheErrorOfTheFirst) {
  for (int first = 0; first < kRanks; ++first) {
    SCOPED_TRACE(first);
    Connect();
    std::array<Communicator, kRanks> groups;
    std::array<Buffer, kRanks> buffers;
    ForAll([&](int r) { UseAll(world(r), &groups[r], &buffers[r]); });
    std::vector<Work> pending;
    for (int r = 0; r < kRanks; ++r) {
      if (r != first) pending.push_back(groups[r].AllReduce(buffers[r].tensor(), ReduceOp::kSum));
    }
    Retire(first);
    for (Work& work : pending) EXPECT_EQ(work.Wait(Soon()), OverFor(first));
    for (int i = 1; i < kRanks; ++i) {
      const int r = (first + i) % kRanks;
      EXPECT_EQ(world(r).Barrier().Wait(Soon()), OverFor(first));
      Retire(r);
      EXPECT_EQ(world(r).status(), OverFor(first));
      EXPECT_EQ(groups[r].status(), OverFor(first));
    }
  }
}

// Runs `body` on a thread of its own.
class Caller {
 public:
  explicit Caller(std::function<Status()> body)
      : thread_([this, body = std::move(body)] {
          tid_ = static_cast<int>(syscall(SYS_gettid));
          result_ = body();
          done_.Set();
        }) {}
  ~Caller() { thread_.join(); }

  // Returns once the thread sleeps in the kernel.
  void AwaitSleep() const {
    Eventually(
        [&] {
          std::ifstream file(StrCat("/proc/self/task/", tid_.load(), "/stat"));
          std::string line;
          return tid_ != 0 && std::getline(file, line) && line[line.rfind(')') + 2] == 'S';
        },
        "the caller does not wait");
  }
  Status Result() {
    EXPECT_TRUE(done_.WaitUntil(Soon()));
    return result_;
  }

 private:
  std::atomic<int> tid_{0};
  Status result_ = InternalError("has not returned");
  Event done_;
  std::thread thread_;
};

TEST_F(RetireTest, ACallerThatIsBlockedReturns) {
  std::vector<float> values(1 << 20);  // more than a ring holds
  const Tensor all = View(values);
  const std::vector<std::pair<std::string, std::function<Status(Communicator&, int rank)>>> calls = {
      {"barrier", [](Communicator& c, int) { return c.Barrier().Wait(); }},
      {"all-reduce", [&](Communicator& c, int) { return c.AllReduce(all, ReduceOp::kSum).Wait(); }},
      {"receive", [&](Communicator& c, int r) { return c.Receive(all, (r + 1) % kRanks).Wait(); }},
      {"receive from a lower rank",
       [&](Communicator& c, int r) { return c.Receive(all, (r + 2) % kRanks).Wait(); }},
      {"send", [&](Communicator& c, int r) { return c.Send(all, (r + 1) % kRanks).Wait(); }},
      {"messages on a node and between nodes",
       [&](Communicator& c, int r) {
         std::vector<float> other(values.size());
         Work first = c.Receive(View(other), (r + 1) % kRanks);
         const Status status = c.Receive(all, (r + 2) % kRanks).Wait();
         return first.Wait() == status ? status : InternalError("different errors");
       }},
      {"split", [](Communicator& c, int) { return c.Split(0).status(); }},
      {"allocate", [](Communicator& c, int) { return c.Allocate(DType::kInt32, kCount).status(); }},
  };
  for (const auto& [name, call] : calls) {
    Connect();
    for (int r = 0; r < kRanks; ++r) {
      SCOPED_TRACE(StrCat(name, " on rank ", r));
      // Of the first rank only: the others then have its error.
      const auto body = [&, r, &call = call] { return call(world(r), r); };
      Caller caller(body);
      if (r == 0) caller.AwaitSleep();
      Retire(r);
      const Status status = caller.Result();
      EXPECT_EQ(status.code(), StatusCode::kAborted);
      EXPECT_THAT(status.message(), HasSubstr(OverFor(0).message()));
    }
  }
}

TEST_F(RetireTest, OtherThreadsMayUseTheGroupsMeanwhile) {
  for (int i = 0; i < 15; ++i) {
    SCOPED_TRACE(i);
    Connect();
    std::array<std::vector<Communicator>, kRanks> groups;
    std::array<std::vector<Buffer>, kRanks> buffers;
    std::array<std::atomic<int>, kRanks> num_done = {};
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    for (int r = 0; r < kRanks; ++r) {
      others.emplace_back([&, r] {  // the one caller of the group
        Communicator handle = world(r);
        for (Status status; status.ok(); ++num_done[r]) {
          StatusOr<Communicator> part = handle.Split(0);
          status = part.status();
          if (!part.ok()) break;
          StatusOr<Buffer> buffer = part->Allocate(DType::kInt32, 100);
          status = buffer.status();
          if (!buffer.ok()) break;
          status = part->AllReduce(buffer->tensor(), ReduceOp::kSum).Wait(Soon());
          std::vector<char> text(1 << 20, static_cast<char>(r));
          const int next = (r + 1) % kRanks, before = (r + kRanks - 1) % kRanks;
          std::vector<char> received(text.size());
          const auto bytes = [](std::vector<char>& v) {
            return Tensor{v.data(), static_cast<int64_t>(v.size()), DType::kUInt8};
          };
          Work sent = part->Send(bytes(text), next), got = part->Receive(bytes(received), before);
          (void)got.Wait(Soon());
          (void)sent.Wait(Soon());
          if (num_done[r] % 2 == 0) {  // every other one is destroyed here
            groups[r].push_back(*std::move(part));
            buffers[r].push_back(*std::move(buffer));
          }
        }
        EXPECT_EQ(handle.status().code(), StatusCode::kAborted) << handle.status();
      });
      others.emplace_back([&, r] {
        const Communicator handle = world(r);
        while (!over) {
          const Status status = handle.status();
          EXPECT_TRUE(status.ok() || status.code() == StatusCode::kAborted) << status;
        }
      });
    }
    const int least = i % 4;
    Eventually([&] { return num_done[0] >= least; }, "operations");
    std::thread aborter([&] { world(i % kRanks).Abort("the round is over"); });
    ForAll([&](int r) {
      if (i % 2 == 0 || r == 1) Retire(r);
    });
    aborter.join();
    for (int r = 0; r < kRanks; ++r) {
      if (i % 2 != 0 && r != 1) Retire(r);
    }
    over = true;
    for (std::thread& t : others) t.join();
    for (int r = 0; r < kRanks; ++r) {
      ExpectHusk(world(r), r, kRanks);
      for (Communicator& group : groups[r]) ExpectHusk(group, r, kRanks);
    }
  }
  EXPECT_TRUE(SharedMappings().empty());
}

TEST_F(RetireTest, GroupsMayBeDestroyedMeanwhile) {
  const int num_threads = NumThreads();
  const std::multiset<std::string> descriptors = Descriptors();
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    Connect();
    std::array<Communicator, kRanks> groups;
    std::array<Buffer, kRanks> buffers;
    ForAll([&](int r) { UseAll(world(r), &groups[r], &buffers[r]); });
    std::vector<std::thread> others;
    for (int r = 0; r < kRanks; ++r) {
      others.emplace_back([&, r] {
        groups[r] = Communicator();
        if (i % 2 == 0) buffers[r] = Buffer();
        if (i % 3 == 0) ranks_[r]->world = Communicator();
      });
    }
    ForAll([&](int r) { Retire(r); });
    for (std::thread& t : others) t.join();
    for (auto& rank : ranks_) rank.reset();
  }
  EXPECT_TRUE(SharedMappings().empty());
  EXPECT_EQ(Descriptors(), descriptors);
  Eventually([&] { return NumThreads() == num_threads; }, "threads");
}

// The rank waits for the other one in its bootstrap.
TEST_F(RetireTest, AGroupThatIsBeingCreatedFailsWithTheErrorOfTheFabric) {
  const std::string dir = testing::TempDir() + "/retire.alone";
  ASSERT_TRUE(fs::create_directory(dir));
  const auto fabric = std::make_shared<Fabric>();
  Caller caller([&] {
    FakeFileStore store(dir);
    return CreateHostGroup({.rank = Rank(0), .world_size = 2, .local_world_size = 2, .round = Round(7)},
                           &store, fabric)
        .status();
  });
  FakeFileStore store(dir);
  ASSERT_TRUE(store.Get("node/0", seconds(60)).ok());
  fabric->End(OverFor(0));
  EXPECT_EQ(caller.Result(), OverFor(0));
  fabric->Retire(OverFor(0));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace ddprun

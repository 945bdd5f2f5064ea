// Communicators of several processes. Each rank is a child, which fails if anything is left at its exit.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/nccl/ranks_for_test.h"

namespace ddprun::stand_in {
namespace {

template <typename Body>
void ExpectNoFailure(int num_ranks, Body body) {
  EXPECT_EQ(StatusOfProcesses(num_ranks, body), std::vector<int>(num_ranks, 0));
}

TEST(ProcessesTest, AllReduceOfIntegersIsExact) {
  for (const int num_ranks : {2, 3}) {
    ExpectNoFailure(num_ranks, [&](const ncclUniqueId& id, int number) {
      Rank rank(id, num_ranks, number);
      std::vector<int> in(100'000), sum(in.size());
      for (int i = 0; i < in.size(); ++i) {
        in[i] = i * (number + 1);
        sum[i] = i * num_ranks * (num_ranks + 1) / 2;
      }
      EXPECT_EQ(rank.AllReduce(in, ncclInt32), sum);
      EXPECT_EQ(rank.AllReduce<int>({number}, ncclInt32, ncclMax), std::vector{num_ranks - 1});
    });
  }
}

TEST(ProcessesTest, SumsOfFloatsAreInOtherOrdersButEqualOnAllRanks) {
  ExpectNoFailure(3, [](const ncclUniqueId& id, int number) {
    Rank rank(id, 3, number);
    const float values[] = {1e8f, -1e8f, 1.0f};
    std::set<float> sums;
    for (int i = 0; i < 40; ++i) {
      const float sum = rank.AllReduce<float>({values[number]}, ncclFloat32)[0];
      EXPECT_EQ(rank.AllReduce<float>({sum}, ncclFloat32, ncclMax),
                rank.AllReduce<float>({sum}, ncclFloat32, ncclMin));
      sums.insert(sum);
    }
    EXPECT_EQ(sums, (std::set<float>{0, 1}));
  });
}

TEST(ProcessesTest, OtherCollectives) {
  ExpectNoFailure(3, [](const ncclUniqueId& id, int number) {
    Rank rank(id, 3, number);
    const CUstream stream = rank.stream.get();
    const auto done = [&](ncclResult_t result) {
      EXPECT_EQ(result, ncclInProgress);
      EXPECT_EQ(Await(rank.comm), ncclSuccess);
    };
    const DeviceArray<int> one({number + 1}, rank.stream), out(1),
        three({number, number + 10, number + 20}, rank.stream), gathered(3);
    done(ncclReduce(one.pointer(), out.pointer(), 1, ncclInt32, ncclProd, 2, rank.comm, stream));
    EXPECT_EQ(out.Read(rank.stream)[0], number == 2 ? 6 : -1);
    done(ncclBroadcast(one.pointer(), out.pointer(), 1, ncclInt32, 1, rank.comm, stream));
    EXPECT_EQ(out.Read(rank.stream)[0], 2);
    done(ncclReduceScatter(three.pointer(), out.pointer(), 1, ncclInt32, ncclSum, rank.comm, stream));
    EXPECT_EQ(out.Read(rank.stream)[0], 3 + 30 * number);
    done(ncclAllGather(one.pointer(), gathered.pointer(), 1, ncclInt32, rank.comm, stream));
    EXPECT_EQ(gathered.Read(rank.stream), (std::vector{1, 2, 3}));
    done(ncclAllGather(three.pointer() + number, three.pointer(), 1, ncclInt32, rank.comm, stream));
    EXPECT_EQ(three.Read(rank.stream), (std::vector{0, 11, 22}));
  });
}

TEST(ProcessesTest, MessagesInGroupsAndAlone) {
  ExpectNoFailure(2, [](const ncclUniqueId& id, int number) {
    Rank rank(id, 2, number);
    const std::vector<int> large(300'000, number);
    const DeviceArray<int> out(large, rank.stream), in(large.size());
    const auto send = [&] {
      return ncclSend(out.pointer(), large.size(), ncclInt32, 1 - number, rank.comm, rank.stream.get());
    };
    const auto receive = [&] {
      return ncclRecv(in.pointer(), large.size(), ncclInt32, 1 - number, rank.comm, rank.stream.get());
    };
    for (const bool grouped : {true, false}) {
      Ok(cuMemsetD8Async(in.get(), 9, large.size() * sizeof(int), rank.stream.get()));
      if (grouped || number == 0) {  // in the second round, against two calls of the other rank
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        ExpectAccepted(send());
        ExpectAccepted(receive());
        EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
        EXPECT_EQ(Await(rank.comm), ncclSuccess);
      } else {
        EXPECT_EQ(receive(), ncclInProgress);
        EXPECT_EQ(Await(rank.comm), ncclSuccess);
        EXPECT_EQ(send(), ncclInProgress);
        EXPECT_EQ(Await(rank.comm), ncclSuccess);
      }
      EXPECT_EQ(in.Read(rank.stream), std::vector<int>(large.size(), 1 - number));
    }
  });
}

// The second communicator shows that the ranks are alive and have started the operations of the first one.
TEST(ProcessesTest, DifferentCallsHangUntilTheAbort) {
  const auto counts = [](const Rank& rank, const DeviceArray<int>& a, int number) {
    return ncclAllReduce(a.pointer(), a.pointer(), 1 + number, ncclInt32, ncclSum, rank.comm,
                         rank.stream.get());
  };
  const auto types = [](const Rank& rank, const DeviceArray<int>& a, int number) {
    return ncclAllReduce(a.pointer(), a.pointer(), 1, number == 0 ? ncclInt32 : ncclUint32, ncclSum,
                         rank.comm, rank.stream.get());
  };
  const auto ops = [](const Rank& rank, const DeviceArray<int>& a, int number) {
    return ncclAllReduce(a.pointer(), a.pointer(), 1, ncclInt32, number == 0 ? ncclSum : ncclMax, rank.comm,
                         rank.stream.get());
  };
  const auto kinds = [](const Rank& rank, const DeviceArray<int>& a, int number) {
    if (number == 0)
      return ncclBroadcast(a.pointer(), a.pointer(), 1, ncclInt32, 0, rank.comm, rank.stream.get());
    return ncclAllReduce(a.pointer(), a.pointer(), 1, ncclInt32, ncclSum, rank.comm, rank.stream.get());
  };
  const auto missing = [](const Rank& rank, const DeviceArray<int>& a, int number) {
    if (number == 1) return ncclInProgress;
    return ncclAllReduce(a.pointer(), a.pointer(), 1, ncclInt32, ncclSum, rank.comm, rank.stream.get());
  };
  const auto run = [](auto start) {
    ExpectNoFailure(2, [&](const ncclUniqueId& id, int number) {
      Rank rank(id, 2, number);
      // The id of the second communicator is sent over the first.
      ncclUniqueId second_id = NewId();
      const DeviceArray<char> bytes(
          std::vector<char>(second_id.internal, second_id.internal + sizeof second_id), rank.stream);
      EXPECT_EQ(ncclBroadcast(bytes.pointer(), bytes.pointer(), sizeof second_id, ncclInt8, 0, rank.comm,
                              rank.stream.get()),
                ncclInProgress);
      EXPECT_EQ(Await(rank.comm), ncclSuccess);
      const std::vector<char> sent = bytes.Read(rank.stream);
      std::copy(sent.begin(), sent.end(), second_id.internal);
      Rank alive(second_id, 2, number);

      const DeviceArray<int> array({5, 6}, rank.stream);
      EXPECT_EQ(start(rank, array, number), ncclInProgress);
      EXPECT_EQ(Await(rank.comm), ncclSuccess);
      for (int i = 0; i < 20; ++i) EXPECT_EQ(alive.AllReduce<int>({1}, ncclInt32), std::vector{2});
      EXPECT_EQ(cuStreamQuery(rank.stream.get()), CUDA_ERROR_NOT_READY);
      // The abort of one rank is the death of a peer for the other, which must hang before that.
      EXPECT_EQ(alive.AllReduce<int>({1}, ncclInt32), std::vector{2});
      rank.Abort();
      EXPECT_EQ(array.Read(rank.stream), (std::vector{5, 6}));
    });
  };
  run(counts);
  run(types);
  run(ops);
  run(kinds);
  ExpectNoFailure(2, [&](const ncclUniqueId& id, int number) {
    Rank rank(id, 2, number);
    const DeviceArray<int> array({5, 6}, rank.stream);
    EXPECT_EQ(missing(rank, array, number), ncclInProgress);
    EXPECT_EQ(Await(rank.comm), ncclSuccess);
    if (number == 0) {
      EXPECT_EQ(cuStreamQuery(rank.stream.get()), CUDA_ERROR_NOT_READY);
    }
    rank.Abort();
    EXPECT_EQ(array.Read(rank.stream), (std::vector{5, 6}));
  });
}

TEST(ProcessesTest, TheDeathOfAPeerIsAnAsynchronousError) {
  const std::vector<int> status = StatusOfProcesses(3, [](const ncclUniqueId& id, int number) {
    Rank rank(id, 3, number);
    if (number == 2) raise(SIGKILL);
    const DeviceArray<int> array({5}, rank.stream);
    EXPECT_EQ(
        ncclAllReduce(array.pointer(), array.pointer(), 1, ncclInt32, ncclSum, rank.comm, rank.stream.get()),
        ncclInProgress);
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess || result == ncclInProgress) ncclCommGetAsyncError(rank.comm, &result);
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_EQ(cuStreamQuery(rank.stream.get()), CUDA_ERROR_NOT_READY) << "only the abort ends the operation";
    rank.Abort();
    EXPECT_EQ(array.Read(rank.stream), std::vector{5});
  });
  EXPECT_EQ(status[0], 0);
  EXPECT_EQ(status[1], 0);
  EXPECT_TRUE(WIFSIGNALED(status[2]));
  EXPECT_EQ(WTERMSIG(status[2]), SIGKILL);
}

TEST(ProcessesTest, TheDeathOfAPeerMayStaySilent) {
  setenv("DDPRUN_STAND_IN_SILENT_DEATHS", "1", 1);
  setenv("DDPRUN_STAND_IN_ERROR_DELAY_MS", "0", 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto body = [&](const ncclUniqueId& id, int number) {
    Rank rank(id, 2, number);
    if (number == 1) raise(SIGKILL);
    close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 0) << "the other rank closes its end when it dies";
    const DeviceArray<int> array({5}, rank.stream);
    EXPECT_EQ(
        ncclAllReduce(array.pointer(), array.pointer(), 1, ncclInt32, ncclSum, rank.comm, rank.stream.get()),
        ncclInProgress);
    EXPECT_EQ(Await(rank.comm), ncclSuccess);
    for (int i = 0; i < 1000; ++i) {
      ncclResult_t result = ncclInProgress;
      ncclCommGetAsyncError(rank.comm, &result);
      EXPECT_EQ(result, ncclSuccess);
      std::this_thread::yield();
    }
    EXPECT_EQ(cuStreamQuery(rank.stream.get()), CUDA_ERROR_NOT_READY);
    rank.Abort();
  };
  EXPECT_EQ(StatusOfProcesses(2, body, [&] { close(ends[1]); })[0], 0);
  close(ends[0]);
  unsetenv("DDPRUN_STAND_IN_SILENT_DEATHS");
  unsetenv("DDPRUN_STAND_IN_ERROR_DELAY_MS");
}

}  // namespace
}  // namespace ddprun::stand_in

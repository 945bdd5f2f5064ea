// Streams, events and contexts of the stand-in: order, and mistakes.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {
namespace {

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using StreamDeathTest = StreamTest;

// Creates an object that is never destroyed. It stays reachable, so that LeakSanitizer does not report it.
template <typename T, typename... Arguments>
void Leave(Arguments... arguments) {
  [[maybe_unused]] static T* volatile left = nullptr;
  left = new T(arguments...);
}

// Waits until the event has happened. Never returns if it does not.
void Await(CUevent event) {
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}

TEST_F(StreamTest, ExecutesInOrder) {
  const ScopedContext context;
  const ScopedStream stream;
  const DeviceArray<char> array(1);
  for (int i = 0; i < 100; ++i) Ok(cuMemsetD8Async(array.get(), i, 1, stream.get()));
  EXPECT_EQ(array.Read(stream), std::vector<char>{99});
}

TEST_F(StreamTest, TwoStreamsRunIndependently) {
  const ScopedContext context;
  const ScopedStream held, free;
  ScopedHold hold(held);
  const DeviceArray<char> array(1);
  Ok(cuMemsetD8Async(array.get(), 1, 1, held.get()));
  EXPECT_EQ(cuStreamQuery(held.get()), CUDA_ERROR_NOT_READY);
  free.Synchronize();
  EXPECT_EQ(cuStreamQuery(free.get()), CUDA_SUCCESS);
  EXPECT_EQ(array.Read(free), std::vector<char>{-1});
  hold.Release();
  held.Synchronize();
  EXPECT_EQ(cuStreamQuery(held.get()), CUDA_SUCCESS);
}

TEST_F(StreamTest, AnEventOrdersTwoStreams) {
  const ScopedContext context;
  const ScopedStream first, second;
  const ScopedEvent event;
  const DeviceArray<char> array(1);
  ScopedHold hold(first);
  Ok(cuMemsetD8Async(array.get(), 1, 1, first.get()));
  Ok(cuEventRecord(event.get(), first.get()));
  Ok(cuStreamWaitEvent(second.get(), event.get(), 0));
  Ok(cuMemsetD8Async(array.get(), 2, 1, second.get()));
  EXPECT_EQ(cuEventQuery(event.get()), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(second.get()), CUDA_ERROR_NOT_READY);
  hold.Release();
  EXPECT_EQ(array.Read(second), std::vector<char>{2});
  EXPECT_EQ(cuEventQuery(event.get()), CUDA_SUCCESS);
  EXPECT_EQ(array.Read(first), std::vector<char>{2});
}

TEST_F(StreamTest, AnEventIsTheWorkAtItsLastRecord) {
  const ScopedContext context;
  const ScopedStream stream, other;
  const ScopedEvent event;
  Ok(cuEventRecord(event.get(), stream.get()));
  Await(event.get());
  ScopedHold hold(stream);
  EXPECT_EQ(cuEventQuery(event.get()), CUDA_SUCCESS) << "later work does not count";
  Ok(cuEventRecord(event.get(), stream.get()));
  EXPECT_EQ(cuEventQuery(event.get()), CUDA_ERROR_NOT_READY);
  Ok(cuStreamWaitEvent(other.get(), event.get(), 0));
  Ok(cuEventRecord(event.get(), other.get()));  // does not change what `other` waits for
  EXPECT_EQ(cuStreamQuery(other.get()), CUDA_ERROR_NOT_READY);
  hold.Release();
  Await(event.get());
}

TEST_F(StreamTest, WorkOfADestroyedStreamIsExecuted) {
  const ScopedContext context;
  const ScopedEvent event;
  const DeviceArray<char> array(1);
  {
    const ScopedStream stream;
    Ok(cuMemsetD8Async(array.get(), 1, 1, stream.get()));
    Ok(cuEventRecord(event.get(), stream.get()));
  }
  Await(event.get());
  EXPECT_EQ(array.Read(ScopedStream()), std::vector<char>{1});
}

TEST_F(StreamTest, ContextsAreAStackOfTheThread) {
  const ScopedContext context;
  const ScopedStream stream;
  CUcontext current = nullptr, of_stream = nullptr, of_thread = context.get();
  Ok(cuCtxGetCurrent(&current));
  Ok(cuStreamGetCtx(stream.get(), &of_stream));
  std::thread([&] { Ok(cuCtxGetCurrent(&of_thread)); }).join();
  EXPECT_EQ(current, context.get());
  EXPECT_EQ(of_stream, context.get());
  EXPECT_EQ(of_thread, nullptr);
  Ok(cuCtxPushCurrent(context.get()));
  CUcontext popped = nullptr;
  Ok(cuCtxPopCurrent(&popped));
  EXPECT_EQ(popped, context.get());
  Ok(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context.get());
}

TEST_F(StreamTest, CountsObjects) {
  StandInCounts counts;
  {
    const ScopedContext context;
    const ScopedStream stream;
    const ScopedEvent event;
    const DeviceArray<char> array(1);
    StandInReport(&counts);
    EXPECT_EQ(counts.contexts, 1);
    EXPECT_EQ(counts.streams, 1);
    EXPECT_EQ(counts.events, 1);
    EXPECT_EQ(counts.allocations, 1);
  }
  StandInReport(&counts);
  EXPECT_EQ(counts.contexts + counts.streams + counts.events + counts.allocations, 0);
}

TEST_F(StreamDeathTest, EventThatWasNeverRecorded) {
  const ScopedContext context;
  const ScopedStream stream;
  const ScopedEvent event;
  EXPECT_DEATH(cuStreamWaitEvent(stream.get(), event.get(), 0),
               "misuse: cuStreamWaitEvent: .*never recorded");
  EXPECT_DEATH(cuEventQuery(event.get()), "misuse: cuEventQuery: .*never recorded");
}

TEST_F(StreamDeathTest, DestroyedObjects) {
  const ScopedContext context;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  Ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  Ok(cuStreamDestroy(stream));
  Ok(cuEventCreate(&event, 0));
  Ok(cuEventDestroy(event));
  EXPECT_DEATH(cuStreamQuery(stream), "misuse: cuStreamQuery: no such stream");
  EXPECT_DEATH(cuEventQuery(event), "misuse: cuEventQuery: no such event");
}

TEST_F(StreamDeathTest, DefaultStream) {
  const ScopedContext context;
  const ScopedEvent event;
  EXPECT_DEATH(cuEventRecord(event.get(), nullptr), "misuse: cuEventRecord: on the default stream");
  EXPECT_DEATH(cuStreamQuery(CU_STREAM_PER_THREAD), "misuse: cuStreamQuery: on the default stream");
}

TEST_F(StreamDeathTest, ThreadWithoutContext) {
  const ScopedContext context;
  const ScopedStream stream;
  EXPECT_DEATH(std::thread([&] { cuStreamQuery(stream.get()); }).join(),
               "misuse: cuStreamQuery: the thread has no current context");
}

TEST_F(StreamDeathTest, ThreadWithoutContextAsAnError) {
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_CONTEXT_ERRORS", "1", 1);
        Ok(cuInit(0));
        CUstream stream = nullptr;
        const CUresult result = cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
        std::exit(result == CUDA_ERROR_INVALID_CONTEXT ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StreamDeathTest, ContextOfAnotherDevice) {
  EXPECT_DEATH(
      {
        setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
        const ScopedContext zero(0);
        const ScopedStream stream;
        const ScopedContext one(1);
        const ScopedEvent event;
        cuEventRecord(event.get(), stream.get());
      },
      "misuse: cuEventRecord: the stream is of device 0, the current context of device 1");
}

TEST_F(StreamDeathTest, EventOfAnotherDevice) {
  EXPECT_DEATH(
      {
        setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
        const ScopedContext zero(0);
        const ScopedEvent event;
        const ScopedContext one(1);
        const ScopedStream stream;
        cuEventRecord(event.get(), stream.get());
      },
      "misuse: cuEventRecord: the event and the stream are of two devices");
}

TEST_F(StreamDeathTest, ContextReleasedBeforeItsObjects) {
  EXPECT_DEATH(
      {
        const ScopedContext context;
        CUstream stream = nullptr;
        Ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
        cuDevicePrimaryCtxRelease(0);
      },
      "the context still has objects: streams: 1");
}

TEST_F(StreamDeathTest, ChildOfFork) {
  const ScopedContext context;
  GTEST_FLAG_SET(death_test_style, "fast");  // forks
  EXPECT_DEATH(cuMemFree(0), "misuse: cuMemFree_v2: in a child of fork");
}

TEST_F(StreamDeathTest, ObjectsLeftAtExit) {
  EXPECT_EXIT(
      {
        Leave<ScopedContext>();
        Leave<ScopedStream>();
        Leave<ScopedEvent>();
        Leave<DeviceArray<char>>(1);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGABRT),
      "left at exit: contexts: 1, streams: 1, events: 1, allocations: 1, pinned: 0, modules: 0, "
      "communicators: 0");
}

TEST_F(StreamDeathTest, ObjectsLeftAtExitArePrintedOnly) {
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_PRINT_LEAKS", "1", 1);
        Leave<ScopedContext>();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "left at exit: contexts: 1, streams: 0");
}

TEST_F(StreamDeathTest, StaticObjectsAreDestroyedBeforeTheCheck) {
  EXPECT_EXIT(
      {
        static const ScopedContext context;
        static const ScopedStream stream;
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(StreamDeathTest, NothingLeftAtExit) {
  EXPECT_EXIT(
      {
        {
          const ScopedContext context;
          const ScopedStream stream;
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace ddprun::stand_in

// Functions of streams and events.
#include <memory>

#include "worker_sdk/testing/gpu/cuda/state.h"
#include "worker_sdk/testing/gpu/misuse.h"

using ddprun::stand_in::Context;
using ddprun::stand_in::Event;
using ddprun::stand_in::Mark;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::State;
using ddprun::stand_in::Stream;

namespace {

// A copy of the event. Misuse if it does not exist.
Event FindEvent(const char* call, CUevent handle) {
  std::lock_guard lock(State::Get().mutex());
  const Event* const event = State::Get().events.Find(handle);
  if (event == nullptr) Misuse(call, ": no such event: ", handle, "; it may have been destroyed");
  return *event;
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> started = Stream::Start(*state.Current());
  std::lock_guard lock(state.mutex());
  *stream = state.streams.Add(std::move(started));
  return CUDA_SUCCESS;
}

// Work that is still queued is executed.
CUresult cuStreamDestroy(CUstream stream) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const std::shared_ptr<Stream> found = state.FindStream(__func__, stream);
  if (found->context().lost()) return found->context().error();
  found->Close();
  std::lock_guard lock(state.mutex());
  state.streams.Erase(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const std::shared_ptr<Stream> found = state.FindStream(__func__, stream);
  if (found->context().lost()) return found->context().error();
  const Event awaited = FindEvent(__func__, event);
  if (awaited.mark == nullptr) Misuse(__func__, ": the event was never recorded");
  found->WaitFor(__func__, awaited.mark);
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const std::shared_ptr<Stream> found = state.FindStream(__func__, stream);
  const bool idle = found->IsIdle();  // before the error, which the last work may cause
  if (found->context().lost()) return found->context().error();
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const std::shared_ptr<Stream> found = state.FindStream(__func__, stream);
  if (found->context().lost()) return found->context().error();
  found->Synchronize();
  return found->context().error();
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  State& state = State::Get();
  if (const CUresult error = state.EnterWithoutContext(__func__)) return error;
  *context = State::HandleOf(&state.FindStream(__func__, stream)->context());
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned int) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  std::lock_guard lock(state.mutex());
  *event = state.events.Add({state.Current(), nullptr});
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  Context* const context = FindEvent(__func__, event).context;
  if (context->lost()) return context->error();
  std::lock_guard lock(state.mutex());
  state.events.Erase(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const std::shared_ptr<Stream> found = state.StreamOfCurrent(__func__, stream);
  if (FindEvent(__func__, event).context != &found->context())
    Misuse(__func__, ": the event and the stream are of two devices");
  const auto mark = std::make_shared<Mark>();
  found->Record(__func__, mark);
  std::lock_guard lock(state.mutex());
  if (Event* const recorded = state.events.Find(event)) recorded->mark = mark;
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const Event queried = FindEvent(__func__, event);
  if (queried.mark == nullptr) Misuse(__func__, ": the event was never recorded");
  const bool happened = queried.mark->IsSet();  // before the error, which the work before the event may cause
  if (queried.context->lost()) return queried.context->error();
  return happened ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void* StandInHold(void* stream) {
  const auto mark = std::make_shared<Mark>();
  State::Get().FindStream(__func__, static_cast<CUstream>(stream))->WaitFor(__func__, mark);
  return new std::shared_ptr<Mark>(mark);
}

void StandInRelease(void* hold) {
  const std::unique_ptr<std::shared_ptr<Mark>> mark(static_cast<std::shared_ptr<Mark>*>(hold));
  (*mark)->Set();
}

}  // extern "C"

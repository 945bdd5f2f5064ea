// Converts standstills, step times and evidence of workers to and from their messages.
#pragma once

#include <string>
#include <vector>

#include "base/standstill.h"
#include "base/step_times.h"
#include "base/worker_evidence.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Does not set the round.
proto::Standstill EncodeStandstill(const NodeStandstill& standstill);
// REQUIRES: idle_ms >= 0.
NodeStandstill DecodeStandstill(const proto::Standstill& message);

// Does not set the round.
proto::StepTimes EncodeStepTimes(const std::vector<WorkerSteps>& workers);
// Workers whose times make no sense are left out: a negative time, or parts that are longer than the step.
std::vector<WorkerSteps> DecodeStepTimes(const proto::StepTimes& message);

// Texts are cut at what the coordinator accepts. Stacks are left out where the message would exceed `max_bytes`, then places, then what is
// missing, then whole workers, the last ones first.
void EncodeWorkers(const std::vector<WorkerEvidence>& workers, const std::vector<std::string>& missing,
                   size_t max_bytes, proto::Evidence& out);
// Texts are cut, and made valid UTF-8 in one line, except for stacks, which may have several. Numbers that make no sense are replaced
// by the nearest ones that do.
std::vector<WorkerEvidence> DecodeWorkers(const proto::Evidence& message);
std::vector<std::string> DecodeMissing(const proto::Evidence& message);

}  // namespace ddprun

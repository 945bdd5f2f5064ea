// Versions of the wire protocol and of the recording format.
#pragma once

namespace ddprun {

// Version of proto/rendezvous.proto; must be the same in all agents and the coordinator of a job.
inline constexpr int kProtocolVersion = 4;

// Header of a recording: docs/recording.md.
inline constexpr char kRecordingMagic[] = "ddprun recording";
inline constexpr int kRecordingFormat = 1;

}  // namespace ddprun

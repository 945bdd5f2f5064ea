// Versions of the wire protocol and of the recording format.
#pragma once

namespace ddprun {

// Version of proto/rendezvous.proto. All agents and the coordinator of a job must use the same version.
inline constexpr int kProtocolVersion = 7;

// Values in the header of a recording; see docs/recording.md.
inline constexpr char kRecordingMagic[] = "ddprun recording";
inline constexpr int kRecordingFormat = 1;

}  // namespace ddprun

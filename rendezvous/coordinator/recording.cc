#include "rendezvous/coordinator/recording.h"

#include <memory>
#include <sstream>
#include <utility>

#include "google/protobuf/util/delimited_message_util.h"
#include "proto/versions.h"

namespace ddprun {
namespace {

std::string Delimited(const google::protobuf::MessageLite& message) {
  std::ostringstream out;
  google::protobuf::util::SerializeDelimitedToOstream(message, &out);
  return out.str();
}

}  // namespace

std::string DigestOf(absl::string_view bytes) {
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::to_string(crc.checksum());
}

void StepRecorder::Outcome(absl::string_view kind, uint64_t peer, absl::string_view content) {
  crc_.process_bytes(kind.data(), kind.size());
  crc_.process_bytes(&peer, sizeof peer);
  crc_.process_bytes(content.data(), content.size());
}

void StepRecorder::End(TimePoint now) {
  if (!first_) first_ = now;
  step_.set_at_ns(std::chrono::nanoseconds(now - *first_).count());
  step_.set_outcome_crc32(crc_.checksum());
  sink_(step_);
  step_.Clear();
  crc_.reset();
}

StepSink EncodeRecording(std::function<void(std::string bytes)> write, std::function<void()> full,
                         int64_t max_bytes) {
  proto::RecordingHeader header;
  header.set_magic(kRecordingMagic);
  header.set_format(kRecordingFormat);
  header.set_protocol(kProtocolVersion);
  std::string begin = Delimited(header);
  int64_t left = max_bytes - static_cast<int64_t>(begin.size());
  write(std::move(begin));
  return [write = std::move(write), full = std::move(full), left](const proto::RecordedStep& step) mutable {
    if (left < 0) return;
    std::string bytes = Delimited(step);
    left -= static_cast<int64_t>(bytes.size());
    if (left < 0) return full();
    write(std::move(bytes));
  };
}

}  // namespace ddprun

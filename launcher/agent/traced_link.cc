#include "launcher/agent/traced_link.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// Maximum length of a logged message, in bytes. Reports can contain the stderr of many workers.
constexpr size_t kMaxShown = 1000;

template <typename Message>
std::string Shown(const Message& message) {
  std::string text = message.ShortDebugString();
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + " ...";
  return text;
}

class TracedLink final : public CoordinatorLink {
 public:
  TracedLink(std::unique_ptr<CoordinatorLink> link, const AgentLog& log)
      : link_(std::move(link)), log_(log) {}

  void Start(Handlers handlers) override {
    const auto on_message = std::move(handlers.on_message);
    handlers.on_message = [&log = log_, on_message](const proto::CoordinatorMessage& message) {
      if (!message.has_heard()) log.Detail(absl::StrCat("from the coordinator: ", Shown(message)));
      on_message(message);
    };
    const auto on_lost = std::move(handlers.on_lost);
    handlers.on_lost = [&log = log_, on_lost](const absl::Status& why) {
      log.Detail(absl::StrCat("the connection to the coordinator is lost: ", why.message()));
      on_lost(why);
    };
    link_->Start(std::move(handlers));
  }
  void Send(const proto::AgentMessage& message) override {
    if (!message.has_heartbeat()) log_.Detail(absl::StrCat("to the coordinator: ", Shown(message)));
    link_->Send(message);
  }
  void Close() override {
    log_.Detail("closing the connection to the coordinator");
    link_->Close();
  }

 private:
  const std::unique_ptr<CoordinatorLink> link_;
  const AgentLog& log_;
};

}  // namespace

std::unique_ptr<CoordinatorLink> TraceLink(std::unique_ptr<CoordinatorLink> link, const AgentLog& log) {
  if (!log.shows_details()) return link;
  return std::make_unique<TracedLink>(std::move(link), log);
}

}  // namespace ddprun

#include "launcher/process/warden_protocol.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace ddprun {

UniqueFd MemoryFile(const std::string& text) {
  UniqueFd file(memfd_create("ddprun-spawn", MFD_CLOEXEC));
  for (size_t done = 0; file && done < text.size();) {
    const ssize_t n = write(file.get(), text.data() + done, text.size() - done);
    if (n < 0) return UniqueFd();
    done += n;
  }
  return file;
}

UniqueFd MakeSpawnFile(const std::string& cwd, const std::string& file, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& env,
                       warden_protocol::Request& request) {
  std::string text(cwd);
  text.push_back('\0');
  text.append(file).push_back('\0');
  for (const std::string& arg : argv) text.append(arg).push_back('\0');
  for (const auto& [name, value] : env) text.append(name).append("=").append(value).push_back('\0');
  request.num_args = argv.size();
  request.num_env = env.size();
  request.bytes = text.size();
  return MemoryFile(text);
}

bool SpawnStrings::Map(int fd, const warden_protocol::Request& request) {
  void* map = mmap(nullptr, request.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return false;
  map_ = static_cast<char*>(map);
  size_ = request.bytes;
  char* at = map_;
  const auto next = [&at] { return std::exchange(at, at + std::strlen(at) + 1); };
  cwd_ = next();
  file_ = next();
  for (uint32_t i = 0; i < request.num_args; ++i) argv_.push_back(next());
  for (uint32_t i = 0; i < request.num_env; ++i) env_.push_back(next());
  argv_.push_back(nullptr);
  env_.push_back(nullptr);
  return true;
}

SpawnStrings::~SpawnStrings() {
  if (map_ != nullptr) munmap(map_, size_);
}

}  // namespace ddprun

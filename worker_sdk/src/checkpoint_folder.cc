#include "checkpoint_folder.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <system_error>
#include <tuple>

#include "checkpoint_bytes.h"

namespace muster {
namespace {

constexpr std::size_t kEpochDigits = 8;
constexpr std::size_t kMaxDigits = 18;  // Any number of 18 digits fits into std::int64_t.
constexpr std::string_view kEnd = ".pt";

std::int64_t order_of(const c10::IValue& snapshot) {
  const auto dict = snapshot.toGenericDict();
  const auto found = dict.find("order");
  return found != dict.end() && found->value().isInt() ? found->value().toInt() : 0;
}

SnapshotWriter writer_of(const c10::IValue& snapshot) {
  SnapshotWriter writer;
  const auto dict = snapshot.toGenericDict();
  const auto run = dict.find("run_id");
  const auto generation = dict.find("generation");
  if (run != dict.end() && run->value().isString()) writer.run_id = run->value().toStringRef();
  if (generation != dict.end() && generation->value().isInt())
    writer.generation = generation->value().toInt();
  return writer;
}

void check_optimizer(const c10::IValue& optimizer, const std::string& where) {
  if (optimizer.isNone()) return;
  if (!entry_of(optimizer, "state", where + "optimizer").isGenericDict())
    throw Error(where + "its optimizer's state is no dict.");
  const auto groups = entry_of(optimizer, "param_groups", where + "optimizer");
  if (!groups.isList()) throw Error(where + "its optimizer's param_groups are no list.");
  for (const c10::IValue& group : groups.toListRef())
    if (!entry_of(group, "params", where + "optimizer").isList())
      throw Error(where + "its optimizer's params are no list.");
}

void check_generators(const c10::IValue& all, const std::string& where) {
  if (!all.isList()) throw Error(where + "its rng is no list with one dict for each rank.");
  for (const c10::IValue& one : all.toListRef()) {
    entry_of(one, "cpu", where + "rng");
    for (const auto& entry : one.toGenericDict())
      if (!entry.key().isString() || !entry.value().isTensor() ||
          !entry.value().toTensor().defined() ||
          entry.value().toTensor().scalar_type() != at::kByte)
        throw Error(where + "its rng has something else than states of generators.");
  }
}

}  // namespace

void check_snapshot(const c10::IValue& snapshot, const std::filesystem::path& path) {
  const std::string where = path.string() + ": not a checkpoint of muster: ";
  for (const char* key : {"model", "optimizer", "epoch", "rng"})
    entry_of(snapshot, key, where + "the snapshot");
  const auto dict = snapshot.toGenericDict();
  if (!dict.at("epoch").isInt()) throw Error(where + "its epoch is no whole number.");
  if (!dict.at("model").isGenericDict()) throw Error(where + "its model is no dict.");
  for (const auto& entry : dict.at("model").toGenericDict())
    if (!entry.key().isString() || !entry.value().isTensor() || !entry.value().toTensor().defined())
      throw Error(where + "its model has something else than tensors by name.");
  check_optimizer(dict.at("optimizer"), where);
  check_generators(dict.at("rng"), where);
}

std::filesystem::path SnapshotFolder::file(std::int64_t epoch) const {
  std::string digits = std::to_string(epoch);
  if (digits.size() < kEpochDigits) digits.insert(0, kEpochDigits - digits.size(), '0');
  return folder_ / (name_ + "-" + digits + std::string(kEnd));
}

std::optional<std::int64_t> SnapshotFolder::epoch_of(const std::string& file_name) const {
  const std::string start = name_ + "-";
  if (!file_name.starts_with(start) || !file_name.ends_with(kEnd) ||
      file_name.size() < start.size() + kEnd.size())
    return std::nullopt;
  const std::string digits =
      file_name.substr(start.size(), file_name.size() - start.size() - kEnd.size());
  if (digits.size() < kEpochDigits || digits.size() > kMaxDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

std::vector<std::filesystem::path> SnapshotFolder::entries() const {
  std::vector<std::filesystem::path> found;
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder_, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure))
    found.push_back(entry->path());
  if (failure && failure != std::errc::no_such_file_or_directory)
    throw Error(folder_.string() +
                ": the folder of checkpoints cannot be read: " + failure.message() + ".");
  return found;
}

std::vector<SnapshotFile> SnapshotFolder::list() const {
  std::vector<SnapshotFile> files;
  for (const std::filesystem::path& path : entries()) {
    const auto epoch = epoch_of(path.filename().string());
    if (!epoch) continue;
    SnapshotFile file;
    file.path = path;
    file.epoch = *epoch;
    try {
      const OpenSnapshot snapshot(path);
      const c10::IValue& outline = snapshot.file().outline();
      check_snapshot(outline, path);
      file.order = order_of(outline);
      file.writer = writer_of(outline);
    } catch (const SystemError& error) {
      if (error.number() == ENOENT) continue;  // The file was removed meanwhile.
      file.refused = error.what();
      file.unreadable = true;
    } catch (const std::exception& error) {
      file.refused = error.what();
    }
    files.push_back(std::move(file));
  }
  const auto rank = [](const SnapshotFile& file) {
    return std::tuple(file.refused.empty(), file.order, file.epoch);
  };
  std::sort(files.begin(), files.end(),
            [&rank](const auto& one, const auto& other) { return rank(one) > rank(other); });
  return files;
}

void SnapshotFolder::remove_partials() const {
  const std::string_view end = kPartialEnd;
  for (const std::filesystem::path& path : entries()) {
    // A name has the form .<name>-<epoch>.pt.<process>.partial
    std::string text = path.filename().string();
    if (!text.starts_with('.') || !text.ends_with(end)) continue;
    text = text.substr(1, text.size() - 1 - end.size());
    const std::size_t dot = text.rfind('.');
    if (dot == std::string::npos || dot + 1 == text.size() ||
        text.find_first_not_of("0123456789", dot + 1) != std::string::npos ||
        !epoch_of(text.substr(0, dot)))
      continue;
    std::error_code ignored;  // A partial file that stays does no harm.
    std::filesystem::remove(path, ignored);
  }
}

void SnapshotFolder::prune(std::vector<SnapshotFile> files, const std::filesystem::path& written,
                           int keep) const {
  std::erase_if(files, [&written](const SnapshotFile& file) {
    return !file.refused.empty() || file.path.filename() == written.filename();
  });
  // `written` is the newest file and counts as one of the `keep` files.
  for (std::size_t i = static_cast<std::size_t>(keep) - 1; i < files.size(); ++i) {
    std::error_code ignored;  // The training goes on if an old file cannot be removed.
    std::filesystem::remove(files[i].path, ignored);
  }
}

}  // namespace muster

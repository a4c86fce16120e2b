// torch.save's files: a zip archive with a pickle of protocol 2 and the tensors' bytes. Private.
//
// LibTorch's own pickle_save() writes types that torch.load refuses with weights_only=True, and its
// pickle_load() refuses what module.state_dict() is in Python.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

namespace caffe2::serialize {
class ReadAdapterInterface;
}

namespace muster {

/// None, bool, whole numbers, doubles, texts, dense tensors; lists, tuples and dicts of them.
/// Throws Error for anything else.
std::vector<char> write_pickle_file(const c10::IValue& value);

/// Knows a closed list of opcodes and names, and executes nothing. Throws Error, or LibTorch's
/// exceptions, for what is torn or has anything else in it. Tensors come on the CPU.
c10::IValue read_pickle_file(std::vector<char> bytes);

/// The same without reading what the tensors hold: they are on the device "meta". Of a large file
/// only a small part is read.
c10::IValue read_pickle_outline(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file);

/// The same values as one pickle, which Python's pickle.loads() reads where torch is there.
std::string write_pickle(const c10::IValue& value);

/// A pickle alone, of any protocol up to Python's own default: None, bool, whole numbers up to 64
/// bits, doubles, texts; lists, tuples and dicts of them; and tensors, as write_pickle() has them.
/// Executes nothing. Throws Error, or LibTorch's exceptions, for anything else.
c10::IValue read_pickle(std::string pickle);

}  // namespace muster

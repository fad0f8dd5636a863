// Makes batches of sequences for both models. A step's sequences depend only on the seed and the step, so a resumed run
// gets the same sequences as an uninterrupted one, whatever the number of ranks.
#pragma once

#include <anyaccel/nn/models.h>

#include <cstdint>
#include <string>
#include <vector>

class Data {
 public:
  virtual ~Data() = default;
  // Returns the sequences [first, first + count) of a step's batch.
  virtual anyaccel::nn::Batch batch(anyaccel::nn::Context& context, int64_t step, int64_t first,
                                    int64_t count) const = 0;
  // Returns batches from the documents that training never sees.
  virtual std::vector<anyaccel::nn::Batch> held_out(anyaccel::nn::Context& context, int64_t sequences) const = 0;
  virtual int64_t tokens() const = 0;  // of the vocabulary
};

// Concatenates documents, each between a begin token and an end token. A sequence begins at the beginning of a
// document.
class Documents {
 public:
  Documents(std::vector<std::vector<int32_t>> documents, int32_t begin, int32_t end, int64_t length);
  // Returns length + 1 tokens.
  std::vector<int32_t> sequence(uint64_t number, bool held_out) const;

 private:
  std::vector<int32_t> stream_;
  std::vector<size_t> starts_;  // of documents from which length + 1 tokens follow
  size_t held_from_;            // the last twentieth of them is held out
  size_t trained_ = 0;          // this many sequences end before the held-out part begins
  size_t length_;
};

// The targets are the next tokens.
class NextToken : public Data {
 public:
  NextToken(Documents documents, int64_t tokens, int64_t length, uint64_t seed)
      : documents_(std::move(documents)), tokens_(tokens), length_(length), seed_(seed) {}
  anyaccel::nn::Batch batch(anyaccel::nn::Context& context, int64_t step, int64_t first, int64_t count) const override;
  std::vector<anyaccel::nn::Batch> held_out(anyaccel::nn::Context& context, int64_t sequences) const override;
  int64_t tokens() const override { return tokens_; }

 private:
  Documents documents_;
  int64_t tokens_, length_;
  uint64_t seed_;
};

// The targets are hidden tokens, as in BERT's training: a seventh of each sequence is selected; of these, eight in ten
// become `mask`, one in ten becomes another token, and one in ten is unchanged.
class HiddenTokens : public Data {
 public:
  HiddenTokens(Documents documents, int64_t tokens, int32_t mask, int64_t length, uint64_t seed)
      : documents_(std::move(documents)), tokens_(tokens), mask_(mask), length_(length), seed_(seed) {}
  anyaccel::nn::Batch batch(anyaccel::nn::Context& context, int64_t step, int64_t first, int64_t count) const override;
  std::vector<anyaccel::nn::Batch> held_out(anyaccel::nn::Context& context, int64_t sequences) const override;
  int64_t tokens() const override { return tokens_; }

 private:
  void add(std::vector<int32_t>& ids, std::vector<int32_t>& targets, uint64_t number, bool held_out) const;

  Documents documents_;
  int64_t tokens_;
  int32_t mask_;
  int64_t length_;
  uint64_t seed_;
};

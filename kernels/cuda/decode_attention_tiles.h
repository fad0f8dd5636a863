// How decode_attention_bytes.cu reads caches: each warp copies tiles of 16 slots in the background to a ring in shared memory of its
// own, and decodes them in registers to numbers of 16 bits, which is exact. Scales of blocks multiply the sums of a block's products
// of query and key, and the weights of its values. AA_BLOCKS: of AA_CACHE_Q8_0, else of AA_CACHE_F8_E4M3. A part of
// decode_attention.h.

AA_FN aa_i64 aa_bytes_of_row(aa_i64 size) { return AA_BLOCKS ? size / 32 * 34 : size; }

// Copies the keys, or values, of the slots [first, first + 16) of those below `end`; zeros for others. `row0`: the byte of slot 0.
template <int kSize>
AA_FN void aa_copy_tile(aa_u8* to, AA_IN(void) cache, aa_i64 row0, aa_i64 first, aa_i64 end, aa_i64 row_bytes) {
#if AA_BLOCKS
  constexpr int kChunks = AA_BYTES_TILE(kSize, AA_BLOCKS) / 16;
  const aa_i64 from = (row0 + first * row_bytes) & ~(aa_i64)15;
  const aa_i64 stop = row0 + (first + AA_DECODE_TILE < end ? first + AA_DECODE_TILE : end) * row_bytes;
  const aa_i32 left = (aa_i32)(stop - from);
  AA_PRAGMA_UNROLL for (int round = 0; round < (kChunks + 31) / 32; ++round) {
    const aa_i32 i = 32 * round + AA_LANE, count = left - 16 * i;
    if (i >= kChunks) continue;
    aa_async_copy_part(to + 16 * i, cache, from + 16 * i, count < 0 ? 0 : count > 16 ? 16 : count);
  }
#else
  constexpr int kChunks = kSize / 16;
  const aa_i32 slots = end - first < AA_DECODE_TILE ? (aa_i32)(end - first) : AA_DECODE_TILE;
  AA_PRAGMA_UNROLL for (int round = 0; round < AA_DECODE_TILE * kChunks / 32; ++round) {
    const aa_i32 i = 32 * round + AA_LANE, slot = i / kChunks, chunk = i % kChunks;
    aa_async_copy16(to + slot * (kSize + 16) + 16 * chunk, cache, row0 + (first + slot) * row_bytes + 16 * chunk,
                    slot < slots && 16 * chunk < row_bytes);
  }
#endif
}

#if AA_BLOCKS
AA_FN aa_u32 aa_half_word(const aa_u8* p) { return *(const aa_u16*)p; }
// Four bytes of a block's values: of odd blocks they begin at multiples of four.
AA_FN aa_u32 aa_word_of_block(const aa_u8* p, bool odd) {
  if (odd) return *(const aa_u32*)p;
  return aa_half_word(p) | aa_half_word(p + 2) << 16;
}
AA_FN float aa_scale_of_block(const aa_u8* block) { return aa_unpack_f16((aa_u16)aa_half_word(block)); }
// Two bytes of a word, its lower or upper ones, less 128 as f16: 1024 + a byte, less 1152.
AA_FN aa_u32 aa_byte_as_f16(aa_u32 word, bool upper) {
  return aa_subtract_f16(aa_bytes_of(word, 0x64646464u, upper ? 0x4342u : 0x4140u), 0x64806480u);
}
// Two signed bytes of a word, its lower or upper ones, as bf16. 128 + the lowest seven bits, less 128 or 256.
AA_FN aa_u32 aa_signed_as_bf16(aa_u32 word, bool upper) {
  const aa_u32 wide = aa_bytes_of(word, 0x43434343u, upper ? 0x4342u : 0x4140u);
  return aa_subtract_bf16(wide & 0xff7fff7fu, wide & 0xff80ff80u);
}
#endif

// One warp's tiles, as decode_attention.cu's function of this name, with elements in the order of aa_run_of_query() and
// aa_run_of_result(). Every thread of the block calls it.
template <int kSize>
AA_FN void aa_decode_slots(float(&sums) AA_SUMS(kSize), float (&largest)[1], float (&total)[1], aa_u32x4* queries,
                           float* factors, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, const aa_decode_place& at,
                           const aa_tuned_attention& a, aa_u8* ring) {
  constexpr int kRing = AA_RING, kTile = AA_BYTES_TILE(kSize, AA_BLOCKS);
  const aa_i32 lane = AA_LANE, row = lane / 4, pair = lane % 4;
  const aa_i64 row_bytes = aa_bytes_of_row(AA_BLOCKS ? kSize : a.size), step = AA_WARPS * AA_DECODE_TILE;
  aa_u8* const mine = ring + AA_WARP * (kRing * 2 * kTile);  // [tile of the ring][keys, values]
  aa_i64 ask = at.first + AA_WARP * AA_DECODE_TILE;
  const auto load = [&](int place) {
    if (ask < at.end) {
      aa_copy_tile<kSize>(mine + place * (2 * kTile), k, at.k_at, ask, at.end, row_bytes);
      aa_copy_tile<kSize>(mine + place * (2 * kTile) + kTile, v, at.v_at, ask, at.end, row_bytes);
      ask += step;
    }
    aa_async_commit();
  };
  aa_i64 first = ask;
  AA_PRAGMA_NO_UNROLL for (int place = 0; place < kRing; ++place) load(place);
  aa_take_queries<kSize>(queries, factors, q, at, a);
  AA_BARRIER();
  const float scale = a.scale * factors[row];
#if AA_BLOCKS
  constexpr int bytes = kSize / 32 * 34;  // of a row: heads are as large as the kernel's
#endif

  int place = 0;
  AA_PRAGMA_NO_UNROLL for (; first < at.end; first += step) {
    aa_async_wait(kRing - 1);
    AA_WARP_SYNC();  // each lane reads what others have copied
    const aa_u8* keys = mine + place * (2 * kTile);
    const aa_u8* values = keys + kTile;
    float x[4];
#if AA_BLOCKS
    keys += (at.k_at + first * row_bytes) & 15;
    values += (at.v_at + first * row_bytes) & 15;
    AA_PRAGMA_UNROLL for (int n = 0; n < 2; ++n) {
      float sum[2] = {0.0f, 0.0f};
      AA_PRAGMA_UNROLL for (int i = 0; i < kSize / 32; ++i) {
        const aa_u8* const key = keys + (8 * n + row) * bytes + 34 * i + 2 + 4 * pair;
        const aa_u32 word[2] = {aa_word_of_block(key, i % 2) ^ 0x80808080u, aa_word_of_block(key + 16, i % 2) ^ 0x80808080u};
        float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        AA_PRAGMA_UNROLL for (int run = 0; run < 2; ++run) {
          const aa_u32x4 parts = queries[(2 * i + run) * 32 + lane];
          const aa_u32 four[4] = {parts.x, parts.y, parts.z, parts.w};
          aa_mma_f16(score, four, aa_byte_as_f16(word[run], false), aa_byte_as_f16(word[run], true));
        }
        const aa_u8* const block = keys + (8 * n + 2 * pair) * bytes + 34 * i;
        AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
          sum[e] = aa_fma(score[e] + score[2 + e], aa_scale_of_block(block + e * bytes), sum[e]);
        }
      }
      AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
        const float exponent = aa_exponent(sum[e], scale, a.softcap);
        x[2 * n + e] = first + 8 * n + 2 * pair + e < at.end ? exponent : AA_MINUS_INFINITY;
      }
    }
#else
    AA_PRAGMA_UNROLL for (int n = 0; n < 2; ++n) {
      float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      AA_PRAGMA_UNROLL for (int i = 0; i < kSize / 64; ++i) {
        aa_u32x4 key = {0, 0, 0, 0};
        if (64 * i + 16 * pair < a.size) {
          key = *(const aa_u32x4*)(keys + (8 * n + row) * (kSize + 16) + 64 * i + 16 * pair);
        }
        const aa_u32 word[4] = {key.x, key.y, key.z, key.w};
        AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
          const int chunk = 2 * i + half;
          const aa_u32x4 one = queries[2 * chunk * 32 + lane], two = queries[(2 * chunk + 1) * 32 + lane];
          const aa_u32 low[4] = {one.x, one.y, one.z, one.w}, high[4] = {two.x, two.y, two.z, two.w};
          aa_mma_f16(score, low, aa_e4m3_as_f16(word[2 * half], false), aa_e4m3_as_f16(word[2 * half], true));
          aa_mma_f16(score, high, aa_e4m3_as_f16(word[2 * half + 1], false), aa_e4m3_as_f16(word[2 * half + 1], true));
        }
      }
      AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
        const float exponent = aa_exponent(score[e] + score[2 + e], scale, a.softcap);
        x[2 * n + e] = first + 8 * n + 2 * pair + e < at.end ? exponent : AA_MINUS_INFINITY;
      }
    }
#endif

    aa_scale_sums(sums, aa_take_scores(x, largest[0], total[0]));
#if AA_BLOCKS
    AA_PRAGMA_UNROLL for (int i = 0; i < kSize / 32; ++i) {
      aa_u32 word[4];  // of slots 2 pair, + 1, 8 + 2 pair, + 1
      float scaled[4];
      AA_PRAGMA_UNROLL for (int n = 0; n < 4; ++n) {
        const aa_u8* const block = values + (2 * pair + n % 2 + 8 * (n / 2)) * bytes + 34 * i;
        word[n] = aa_word_of_block(block + 2 + 4 * row, i % 2);
        scaled[n] = x[n] * aa_scale_of_block(block);
      }
      aa_u32 weight[2][3];
      aa_split_bf16<0>(scaled[0], scaled[1], weight[0]);
      aa_split_bf16<0>(scaled[2], scaled[3], weight[1]);
      AA_PRAGMA_UNROLL for (int u = 0; u < 2; ++u) {
        const aa_u32 which = u ? 0x7362u : 0x5140u;  // the slots' bytes by turns
        const aa_u32 near = aa_bytes_of(word[0], word[1], which), far = aa_bytes_of(word[2], word[3], which);
        const aa_u32 across[4] = {aa_signed_as_bf16(near, false), aa_signed_as_bf16(near, true),
                                  aa_signed_as_bf16(far, false), aa_signed_as_bf16(far, true)};
        AA_PRAGMA_UNROLL for (int part = 0; part < 3; ++part) {
          aa_mma_bf16(sums[2 * i + u], across, weight[0][part], weight[1][part]);
        }
      }
    }
#else
    aa_u32 weight[2][AA_PARTS];
    AA_SPLIT<AA_LEAST>(x[0], x[1], weight[0]);
    AA_SPLIT<AA_LEAST>(x[2], x[3], weight[1]);
    AA_PRAGMA_UNROLL for (int i = 0; i < kSize / 64; ++i) {
      aa_u32 word[4][2];
      AA_PRAGMA_UNROLL for (int n = 0; n < 4; ++n) {
        word[n][0] = word[n][1] = 0;
        if (64 * i + 8 * row >= a.size) continue;
        const aa_u32* const at_slot =
            (const aa_u32*)(values + (2 * pair + n % 2 + 8 * (n / 2)) * (kSize + 16) + 64 * i + 8 * row);
        word[n][0] = at_slot[0];
        word[n][1] = at_slot[1];
      }
      AA_PRAGMA_UNROLL for (int u = 0; u < 4; ++u) {
        const aa_u32 which = u % 2 ? 0x7362u : 0x5140u;  // the slots' bytes by turns
        const aa_u32 near = aa_bytes_of(word[0][u / 2], word[1][u / 2], which),
                     far = aa_bytes_of(word[2][u / 2], word[3][u / 2], which);
        const aa_u32 across[4] = {aa_e4m3_as_f16(near, false), aa_e4m3_as_f16(near, true), aa_e4m3_as_f16(far, false),
                                  aa_e4m3_as_f16(far, true)};
        AA_PRAGMA_UNROLL for (int part = 0; part < AA_PARTS; ++part) {
          aa_mma_f16(sums[4 * i + u], across, weight[0][part], weight[1][part]);
        }
      }
    }
#endif
    AA_WARP_SYNC();  // before others overwrite it
    load(place);
    place = place + 1 == kRing ? 0 : place + 1;
  }
  total[0] += aa_shuffle_xor(total[0], 1);
  total[0] += aa_shuffle_xor(total[0], 2);
}

/**
 * The contract between the engine, which computes, and the views, which draw: every type that crosses it.
 *
 * Shape letters: T positions (Tq of queries, Tk of keys), C the model's width, D a head's width, F the feed-forward
 * network's, V the vocabulary's. All arithmetic is of one sentence: there is no batch.
 *
 * Two stacks are named "encoder" and "decoder"; a language model (GPT) has a decoder alone. Layers, heads and positions
 * count from 0.
 *
 * @module types
 */

// --- Numbers ---------------------------------------------------------------------------------------------------------

/**
 * Numbers in rows, one after another: the entry of row i and column j is `data[i * cols + j]`.
 * @typedef {{ rows: number, cols: number, data: Float32Array }} Matrix
 */

/**
 * A matrix of weights, which may be int8: then the entry of row i and column j is `data[i * cols + j]` times the scale
 * of its row, or of its column.
 * @typedef {object} Weight
 * @property {number} rows
 * @property {number} cols
 * @property {Float32Array | Int8Array} data
 * @property {Float32Array | null} [rowScales]
 * @property {Float32Array | null} [columnScales]
 */

// --- The payload, written by Python, and the configuration in it -----------------------------------------------------

/** @typedef {"encoder" | "decoder"} StackName */
/** @typedef {"self_attention" | "cross_attention"} AttentionKind */
/** @typedef {AttentionKind | "feed_forward"} SublayerKind */

/**
 * What the page holds as JSON.
 *
 * name        of the file that the model came from
 * languages   those that it translates from and to, where they are known
 * examples    sentences to try, or the names of pictures
 * pictures    what a captioner describes: a true caption, and base64 of its float32 pixels (channels, height, width)
 * storage     how the weights are stored; `loss` is what int8 costs, measured when the page was written
 * weights     base64 of all arrays, each at its `offset` in bytes
 * @typedef {object} Payload
 * @property {"minitransformer explorer"} format
 * @property {1} version
 * @property {string} name
 * @property {[string, string] | null} languages
 * @property {string[]} examples
 * @property {{ caption: string, pixels: string }[]} pictures
 * @property {ModelConfig} config
 * @property {OwnTokenizer | PretrainedTokenizer} tokenizer
 * @property {"float32" | "int8"} storage
 * @property {StorageLoss | null} loss
 * @property {StoredTensor[]} tensors
 * @property {string} weights
 */

/**
 * `before` and `after` are the ids that stand around a text.
 * @typedef {{ characters: string, merges: [string, string][], before: number[], after: number[] }} OwnTokenizer
 */

/**
 * A tokenizer of the package tokenizers. Its steps are operations with their values, see cutting.py.
 *
 * pieces   of each id; null: there is none
 * added    tokens that are found in a text as they stand
 * @typedef {object} PretrainedTokenizer
 * @property {(string | null)[]} pieces
 * @property {AddedToken[]} added
 * @property {Step[]} normalizer
 * @property {Step[]} cuts
 * @property {BpeModel | UnigramModel} model
 * @property {Step[]} decoder
 * @property {number[]} before
 * @property {number[]} after
 */

/** @typedef {[string, ...any[]]} Step */

/**
 * special      it is no part of a decoded text
 * normalized   it is looked for in the normalised text
 * lstrip       it takes the white space before it; rstrip: after it
 * isPiece      the model may cut a text into it besides
 * @typedef {object} AddedToken
 * @property {number} id
 * @property {string} content
 * @property {boolean} special
 * @property {boolean} normalized
 * @property {boolean} lstrip
 * @property {boolean} rstrip
 * @property {boolean} isPiece
 */

/**
 * merges         pairs of ids, one after another, the oldest first
 * unknown        id of what no piece has
 * fuseUnknown    neighbours that are unknown are one token
 * byteFallback   unknown characters are their bytes
 * ignoreMerges   a word that is a piece is not cut
 * @typedef {object} BpeModel
 * @property {"BPE"} type
 * @property {number[]} merges
 * @property {number | null} unknown
 * @property {boolean} fuseUnknown
 * @property {boolean} byteFallback
 * @property {boolean} ignoreMerges
 */

/**
 * `scores`: the log-probability of each piece.
 * @typedef {{ type: "Unigram", scores: number[], unknown: number | null, byteFallback: boolean }} UnigramModel
 */

/**
 * What int8 changes, measured on some sentences: differences of log-probabilities, and greedy outputs.
 * @typedef {object} StorageLoss
 * @property {number} sentences
 * @property {number} maxDifference
 * @property {number} meanDifference
 * @property {number} equalOutputs of as many sentences
 */

/**
 * An array in the weights. With a `scalesOffset` it is int8: each entry is its byte times the float32 scale of its row
 * or column.
 * @typedef {object} StoredTensor
 * @property {string} name as in Python: "encoder.layers.0.self_attention.query_key_value.weight"
 * @property {number[]} shape
 * @property {number} offset
 * @property {number | null} scalesOffset
 * @property {"rows" | "columns"} [scalesOf]
 */

/**
 * The model as a tree. `kind` "transformer": encoder and decoder; "captioner": the same, and the encoder reads the
 * patches of a picture, see `image`; "gpt": a decoder alone, and `encoder` is null.
 * @typedef {object} ModelConfig
 * @property {"transformer" | "captioner" | "gpt"} kind
 * @property {number} vocabSize
 * @property {number} dModel
 * @property {number} maxLength the longest sequence of tokens, with its mark
 * @property {number | null} padId
 * @property {number | null} bosId
 * @property {number | null} eosId
 * @property {number[]} endIds all that end a text
 * @property {number[]} forbidden tokens that are never written
 * @property {number} embeddingScale
 * @property {boolean} tied the output layer's table is that of the tokens
 * @property {boolean} outputBias
 * @property {number | null} logitsSoftcap
 * @property {ImageConfig | null} image
 * @property {StackConfig | null} encoder
 * @property {StackConfig} decoder
 */

/**
 * Pictures are `size` pixels wide and high, with `channels` numbers from −1 to 1 in each; so are patches of `patchSize`.
 * @typedef {{ channels: number, size: number, patchSize: number }} ImageConfig
 */

/**
 * @typedef {object} StackConfig
 * @property {number} numLayers
 * @property {"sinusoidal" | "sinusoidal_halves" | "learned" | "none"} positions what is added to the tokens
 * @property {number} outputScale
 * @property {BlockConfig} block
 * @property {AttentionConfig[]} attentions one for each layer; they differ in window and rotary positions at most
 */

/**
 * @typedef {object} BlockConfig
 * @property {boolean} causal
 * @property {boolean} cross
 * @property {FeedForwardConfig} feedForward
 * @property {NormConfig} norm
 */

/** @typedef {"relu" | "gelu" | "gelu_tanh" | "silu"} Activation */
/** @typedef {{ dFf: number, activation: Activation, gated: boolean }} FeedForwardConfig */

/**
 * `first`: pre-norm, before each sub-layer, and once more after the last layer; else post-norm.
 * @typedef {{ first: boolean, eps: number, kind: "layernorm" | "rmsnorm" }} NormConfig
 */

/**
 * @typedef {object} AttentionConfig
 * @property {number} numHeads
 * @property {number} numKvHeads
 * @property {number} dK
 * @property {number} dV
 * @property {number} scale what multiplies query · key
 * @property {number | null} softcap
 * @property {number | null} window self-attention reaches keys at this distance or less
 * @property {SparseConfig | null} sparse
 * @property {RotaryConfig | null} rotary
 * @property {RelativeConfig | null} relative
 */

/**
 * @typedef {{ block: number | null, summary: number, stride: number | null, globalTokens: number }} SparseConfig
 */

/**
 * `frequencies`: the angle by which each pair of channels turns in one position.
 * @typedef {{ frequencies: number[], interleaved: boolean }} RotaryConfig
 */

/**
 * A bias of the scores by distance. T5's: `buckets[distance + reach]` is the row of the table for a key at this
 * distance after its query; distances beyond ±reach count as ±reach. ALiBi's: minus slope times distance, one slope a
 * head.
 * @typedef {{ kind: "t5", buckets: number[], reach: number } | { kind: "alibi", slopes: number[] }} RelativeConfig
 */

// --- Tokens ----------------------------------------------------------------------------------------------------------

/**
 * A token for display.
 *
 * text       readable, as Python's `tokenizer.tokens`: "▁dog", "<0xC3>", "</s>"
 * piece      the characters that it stands for, " dog"; "" for a special token and for a part of a character
 * word       number of the word that it belongs to; the tokens of a word are neighbours; a special token is a word
 * isSpecial  <pad>, <s> or </s>
 * @typedef {object} Token
 * @property {number} id
 * @property {string} text
 * @property {string} piece
 * @property {number} word
 * @property {boolean} isSpecial
 */

/**
 * The ids that a model reads for a text. `isCut`: the text was too long for the model and lost its end.
 * @typedef {{ ids: number[], isCut: boolean }} Encoded
 */

/**
 * What an encoder reads: ids, or a picture's patches, row by row, each with the numbers of its pixels.
 * @typedef {number[] | number[][]} Source
 */

// --- A pass and its trace --------------------------------------------------------------------------------------------

/**
 * What a model reads. Of a Transformer: `source`, with </s> at its end, and `target`, which begins with <s> and lacks
 * the last token. Of a captioner: `source` is a picture's patches. Of a GPT: `source` is null, and `target` is the text
 * so far.
 * @typedef {{ source: Source | null, target: number[] }} Inputs
 */

/**
 * Everything that happened in a pass.
 *
 * logits, logProbs   (T, V): row t is about the token after `inputs.target[t]`
 * @typedef {object} Trace
 * @property {Inputs} inputs
 * @property {Interventions} interventions
 * @property {StackTrace | null} encoder
 * @property {StackTrace} decoder
 * @property {Matrix} logits
 * @property {Matrix} logProbs
 */

/**
 * A stack's part of a trace.
 *
 * embedding    (T, C): what was looked up, times the embedding's scale, or the projected patches
 * positions    (T, C): what was added to it, zeros where it was switched off; null where nothing is ever added
 * input        (T, C): the residual stream before the first layer, embedding + positions, or what was patched in
 * finalNorm    of pre-norm stacks, else null
 * output       (T, C): of an encoder the memory; of a decoder what the output layer reads
 * @typedef {object} StackTrace
 * @property {StackName} name
 * @property {Source} ids
 * @property {Matrix} embedding
 * @property {Matrix | null} positions
 * @property {Matrix} input
 * @property {LayerTrace[]} layers
 * @property {NormTrace | null} finalNorm
 * @property {Matrix} output
 */

/**
 * `output` (T, C): the residual stream after the layer, with what was patched in; so is the last sub-layer's `after`.
 * @typedef {{ sublayers: SublayerTrace[], output: Matrix }} LayerTrace
 */

/**
 * One sub-layer in its residual connection.
 *
 *     post-norm   read = before             sum = before + contribution    after = norm(sum)
 *     pre-norm    read = norm(before)       sum = before + contribution    after = sum
 *
 * before, after   (T, C): the residual stream
 * read            (T, C): what the sub-layer reads
 * contribution    (T, C): what it adds to the stream; zeros where it is switched off
 * isOff           the sub-layer is switched off
 * @typedef {object} SublayerTrace
 * @property {SublayerKind} kind
 * @property {Matrix} before
 * @property {Matrix} read
 * @property {Matrix} contribution
 * @property {Matrix} sum
 * @property {Matrix} after
 * @property {NormTrace} norm
 * @property {NormTrace | null} outputNorm of what the sub-layer computes, before it is added, where there is one
 * @property {AttentionTrace | null} attention null in a feed-forward sub-layer
 * @property {FeedForwardTrace | null} feedForward null in an attention sub-layer
 * @property {boolean} isOff
 */

/**
 * A normalisation: `normed = (input − mean) · rstd`, `output = gamma · normed + beta`. RMS normalisation has mean 0.
 *
 * input    (T, C)
 * mean     (T)
 * rstd     (T): 1 / the standard deviation
 * normed   (T, C)
 * output   (T, C)
 * @typedef {{ input: Matrix, mean: Float32Array, rstd: Float32Array, normed: Matrix, output: Matrix }} NormTrace
 */

/**
 * hidden      (T, F), or (T, 2F) where it is gated, gate then up: before the activation
 * activated   (T, F): what the second linear map reads
 * @typedef {{ hidden: Matrix, activated: Matrix }} FeedForwardTrace
 */

/**
 * Attention of all heads. `kind` says whose keys they are: in "self_attention" those of the same stack, in
 * "cross_attention" the encoder's. Queries of a trace are all T positions, so Tq = T.
 *
 * mixed   (T, H·Dv): the heads' outputs side by side, with what was patched in; a head that is switched off is zeros
 * @typedef {object} AttentionTrace
 * @property {AttentionKind} kind
 * @property {number} scale
 * @property {number | null} softcap
 * @property {HeadTrace[]} heads
 * @property {Matrix} mixed
 */

/**
 * One head: `score = scale · (query · key)`, bent by the softcap, plus the bias; `weights = softmax(masked)`.
 * Heads that share keys and values (grouped heads) have equal ones here.
 *
 * query             (Tq, D), and key (Tk, D): after norms of their own, if the model has them, and rotary positions
 * queryNorm         and keyNorm, null without such norms
 * value             (Tk, Dv)
 * bias              (Tq, Tk): what was added to the scores, or null
 * scores            (Tq, Tk): before the mask; may be 0 for a key after the query
 * masked            (Tq, Tk): −Infinity where the query may not see the key
 * weights           (Tq, Tk): rows sum to 1, or to 0 where a query sees no key
 * output            (Tq, Dv): weights · value; computed also where the head is switched off or patched
 * valueNorms        (Tk): the size of each value
 * projectedNorms    (Tk): the size of each value after the output projection, what it can add to the stream; the
 *                   weight times this is what Kobayashi et al. 2020 plot
 * isOff             the head is switched off
 * @typedef {object} HeadTrace
 * @property {Matrix} query
 * @property {Matrix} key
 * @property {Matrix} value
 * @property {NormTrace | null} queryNorm
 * @property {NormTrace | null} keyNorm
 * @property {Matrix | null} bias
 * @property {Matrix} scores
 * @property {Matrix} masked
 * @property {Matrix} weights
 * @property {Matrix} output
 * @property {Float32Array} valueNorms
 * @property {Float32Array} projectedNorms
 * @property {boolean} isOff
 */

// --- The logit lens --------------------------------------------------------------------------------------------------

/**
 * A possible next token. `probability` is after the temperature where one is given; `logProb` is the model's own.
 * @typedef {{ token: Token, probability: number, logProb: number }} Candidate
 */

/**
 * What the output layer would say of one position if the decoder ended here, through the final norm if there is one.
 *
 * layer      number of layers passed, a layer that has begun counts: 0 is the input
 * sublayer   the one that was passed last; null for the input
 * isLayer    whether the input or a layer ends here: these entries are Python's `logit_lens`
 * top        best first
 * target     the token that was asked about, with its rank from 0; null if none was
 * @typedef {object} LensEntry
 * @property {number} layer
 * @property {SublayerKind | null} sublayer
 * @property {boolean} isLayer
 * @property {Candidate[]} top
 * @property {{ logProb: number, rank: number } | null} target
 */

// --- Interventions ---------------------------------------------------------------------------------------------------

/** @typedef {{ stack: StackName, layer: number, kind: AttentionKind, head: number }} HeadPlace */
/** @typedef {{ stack: StackName, layer: number, kind: SublayerKind | null }} SublayerPlace */
/** @typedef {{ stack: StackName, position: number }} TokenPlace */

/**
 * What a patch replaces at one position, or, with `position` null, at all that the donor has too.
 *
 * layer        the number of layers passed, a layer that has begun counts: 0 is the input
 * kind, head   null: the residual stream there; else the output of this head of the layer, before the output projection
 * @typedef {object} PatchPlace
 * @property {StackName} stack
 * @property {number} layer
 * @property {AttentionKind | null} kind
 * @property {number | null} head
 * @property {number | null} position
 */

/**
 * `values`: what the donor, another run, has in this place, a row for each of its positions.
 * @typedef {PatchPlace & { values: Matrix }} Patch
 */

/**
 * What is changed in a pass. All lists may be empty: `NO_INTERVENTIONS` of interventions.js. Frozen values are welcome.
 *
 * heads       their output is zero before the output projection
 * sublayers   their contribution is zero; `kind` null: all of the layer
 * masked      positions that no query sees; of the encoder: neither the source itself nor the target
 * unplaced    positions whose place the model is not told: nothing is added, nothing turned, no bias of their scores
 * patches     numbers of another run in the place of this one's; `patch` of the engine makes them
 * @typedef {object} Interventions
 * @property {readonly HeadPlace[]} heads
 * @property {readonly SublayerPlace[]} sublayers
 * @property {readonly TokenPlace[]} masked
 * @property {readonly TokenPlace[]} unplaced
 * @property {readonly Patch[]} patches
 */

/**
 * What a run says of two tokens, its own and another run's: the other's logit − its own, and the probability of each.
 * @typedef {{ difference: number, probabilities: number[] }} Leaning
 */

/**
 * How probable tokens are in one pass and in another, with interventions or with edited tokens.
 *
 * tokens      the tokens that are judged: for each position of the target the next one
 * original    (T): log-probability of each
 * changed     (T)
 * difference  (T): changed − original
 * @typedef {object} Comparison
 * @property {number[]} tokens
 * @property {Float64Array} original
 * @property {Float64Array} changed
 * @property {Float64Array} difference
 * @property {number} totalOriginal the sums of the three
 * @property {number} totalChanged
 * @property {number} totalDifference
 */

// --- Searches --------------------------------------------------------------------------------------------------------

/**
 * beams          width of the beam, by default 4; 1 is greedy
 * lengthPenalty  α, by default 0.6: scores are log P / ((5 + length) / 6)^α; a GPT's default is 0
 * maxTokens      of what is written; null or left out: as Python's, the source's length + 50, a captioner's maxLength, or
 *                a GPT's 100
 * prefix         token ids that are written first whatever they score; their log-probabilities count
 * interventions  applied at every step
 * @typedef {object} SearchOptions
 * @property {number} [beams]
 * @property {number} [lengthPenalty]
 * @property {number | null} [maxTokens]
 * @property {readonly number[]} [prefix]
 * @property {Interventions} [interventions]
 */

/**
 * A prefix that a search looked at.
 *
 * id, parent     number in the tree; the root (nothing written) is 0 and has the parent −1
 * depth          tokens written; the root's is 0
 * token          the last one; null at the root
 * tokenLogProb   of the last token
 * logProb        of the whole prefix
 * score          logProb / length penalty
 * status         "kept": continued; "dropped": not among the best; "ended": took </s>; "cut": reached the longest
 *                output; "forced": a token of the prefix that was given
 * rank           among all candidates of its step, from 0
 * @typedef {object} SearchNode
 * @property {number} id
 * @property {number} parent
 * @property {number} depth
 * @property {Token | null} token
 * @property {number} tokenLogProb
 * @property {number} logProb
 * @property {number} score
 * @property {"kept" | "dropped" | "ended" | "cut" | "forced"} status
 * @property {number} rank
 */

/**
 * One step of a search with all its new nodes, best first.
 *
 * length      tokens written after this step
 * openSlots   prefixes that the beam still holds
 * toBeat      the best score of a finished output, −Infinity if there is none
 * bound       the best score that a kept prefix can still reach; the search ends where it is not above `toBeat`
 * isDone      the search is over
 * @typedef {object} SearchStep
 * @property {number} length
 * @property {SearchNode[]} nodes
 * @property {number} openSlots
 * @property {number} toBeat
 * @property {number} bound
 * @property {boolean} isDone
 */

/**
 * A finished output: ids without special tokens. `ended`: it took </s>. `node`: its number in the tree, −1 of a sample.
 * @typedef {{ ids: number[], text: string, score: number, logProb: number, ended: boolean, node: number }} Hypothesis
 */

/**
 * What a search returns at its end: finished outputs, best first, and the tree, in which `nodes[i].id` is i.
 * @typedef {{ hypotheses: Hypothesis[], nodes: SearchNode[] }} SearchResult
 */

/**
 * A search that can be paused: each `next()` computes one step; the value after the last is the result.
 * @typedef {Generator<SearchStep, SearchResult, void>} Search
 */

/**
 * temperature   divides the logits, by default 1; 0 takes the best token
 * topK          draws from the k best tokens; null or left out: from all
 * seed          by default 0; the same seed gives the same text
 * maxTokens, prefix, interventions   as in a search
 * @typedef {object} SamplingOptions
 * @property {number} [temperature]
 * @property {number | null} [topK]
 * @property {number} [seed]
 * @property {number | null} [maxTokens]
 * @property {readonly number[]} [prefix]
 * @property {Interventions} [interventions]
 */

/**
 * One drawn token.
 *
 * length        tokens written after this step
 * probability   of the token, in the distribution that it was drawn from; 1 where it was forced
 * logProb       of the token, as the model has it
 * top           the 20 best tokens, with their share of the distribution that was drawn from
 * @typedef {object} SamplingStep
 * @property {number} length
 * @property {Token} token
 * @property {number} probability
 * @property {number} logProb
 * @property {Candidate[]} top
 * @property {boolean} isDone
 */

/** @typedef {Generator<SamplingStep, Hypothesis, void>} SampledText */

// --- Gradients -------------------------------------------------------------------------------------------------------

/**
 * The gradient of one log-probability with respect to the embedding of every position (scale · row of the table, before
 * positions are added).
 *
 * vectors              (T, C)
 * norms                (T): sizes of the rows
 * gradientTimesInput   (T): row · embedding, a first-order guess of what the token's vector adds to the log-probability
 * @typedef {{ vectors: Matrix, norms: Float32Array, gradientTimesInput: Float32Array }} InputGradient
 */

/** @typedef {{ logProb: number, source: InputGradient | null, target: InputGradient }} GradientResult */

// --- The engine ------------------------------------------------------------------------------------------------------

/**
 * What `createEngine(payload)` of engine.js makes. Everything is synchronous, and equal arguments give equal results.
 *
 * hasEncoder      whether it is an encoder–decoder
 * describes       whether it is one that reads pictures
 * encodeSource    text → ids for a Transformer's `source`, with </s>; a blank text has none. A picture's name → its
 *                 patches; another name has none
 * encodeTarget    text → ids for `target`: <s> and the text (Transformer), or a prompt with its mark (GPT)
 * decode          ids → text, without special tokens
 * tokens          ids → tokens for display, in words; patches → as tokens, named by their row and column
 * trace           a whole pass; `earlier` may be a trace of the target's beginning, with the same source and
 *                 interventions. Throws RangeError for no token, too many tokens, or an id outside the vocabulary
 * lens            the logit lens of one position of the target, with the `count` best tokens (5) of each entry
 * top             the `count` best next tokens (10) after a position of the target, with temperature (1)
 * compare         log-probabilities of `tokens` (one for each position of the target) in two passes with equally long
 *                 targets
 * patch           interventions with one more: what the trace of another run has in a place
 * search          a beam search (greedy with `beams: 1`) that can be paused; `inputs.target` is `encodeTarget("").ids`,
 *                 or a GPT's prompt
 * sample          a text drawn from the model's distribution, token by token
 * gradient        of log P(token) after one position of the target, in the pass of a trace
 * @typedef {object} Engine
 * @property {Payload} payload
 * @property {ModelConfig} config
 * @property {boolean} hasEncoder
 * @property {boolean} describes
 * @property {(text: string) => { ids: Source, isCut: boolean }} encodeSource
 * @property {(text: string) => Encoded} encodeTarget
 * @property {(ids: readonly number[]) => string} decode
 * @property {(ids: Readonly<Source>) => Token[]} tokens
 * @property {(inputs: Inputs, interventions?: Interventions, earlier?: Trace | null) => Trace} trace
 * @property {(trace: Trace, position: number, count?: number, target?: number | null) => LensEntry[]} lens
 * @property {(trace: Trace, position: number, count?: number, temperature?: number) => Candidate[]} top
 * @property {(original: Trace, changed: Trace, tokens: number[]) => Comparison} compare
 * @property {(off: Interventions, donor: Trace, place: PatchPlace) => Interventions} patch
 * @property {(inputs: Inputs, options?: SearchOptions) => Search} search
 * @property {(inputs: Inputs, options?: SamplingOptions) => SampledText} sample
 * @property {(trace: Trace, position: number, token: number) => GradientResult} gradient
 */

export {};

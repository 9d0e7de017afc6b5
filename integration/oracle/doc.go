// Package oracle is a plain model of lapse, and compares lapse with it.
//
// The [Model] folds the stored log one message at a time, in maps. It has no index, no
// cuts, no history of defaults and no batches. Of the product it uses only names,
// subjects and the types of the wire contract. At each message it first expires every
// document whose deadline has been reached, under the configuration of that moment;
// then it applies the message. The documents that remain must be readable. The
// expirations and rejections that it recorded on the way must be in the events stream.
//
// What lapse does not do yet is a constant: see publishesWarnings.
//
// Log time decides: the instant of a message is the greatest stamp (in milliseconds) of
// all messages up to it, whatever they are.
//
// A test ends with [Verify]. [Model.CompareEvents] compares the model with the events
// stream, [Model.CompareReads] compares it with what clients read.
//
// Where the contract leaves a choice, the oracle accepts each: a message with two faults
// may be rejected with the code of either, and the result of a merge patch is compared
// by value, not by bytes.
package oracle

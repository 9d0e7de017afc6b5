// Package oracle says what lapse ought to have done, and compares.
//
// It is a plain model: it folds the stored log message by message, in maps,
// with no index, no cuts, no history of defaults and no batches, and takes no
// code from the product but names, subjects and the types of what is on the
// wire. At each message it first expires, under the configuration of that
// moment, every document whose deadline has been reached, and then applies the
// message. What is left is what must be readable, and what it noted on the way
// is what must have been said.
//
// Time belongs to the log: the instant of a message is the greatest stamp (in
// milliseconds) among the messages up to it, whatever they are.
//
// [Verify] is what a test ends with. [Model] is the fold, [Model.CompareEvents]
// and [Model.CompareReads] hold it against what was said and what is read.
//
// Where the contract leaves a choice, so does the oracle: a message that is
// wrong in two ways may be rejected with the code of either, and the result of
// a merge patch is compared by value, not by bytes.
package oracle

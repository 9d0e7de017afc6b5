// Package replicas reads from replicas of Redis, and returns what the master would have
// answered.
//
// A replica may be behind its master, and it may have another clock. So [Replicas.Run] first
// asks the master how far the partition is, and what time it is: the lead. It then runs the
// script on a replica, and takes the reply only if the replica is not behind the lead. The
// master's clock judges the documents. Reads that begin while the master is being asked share
// the next question. So a read from a replica is as fresh as one from the master:
//
//   - L1: it has every commit that took effect on the master before the read began.
//   - L2: its documents are judged by an instant that the master's clock showed, or that was
//     committed, after the read began. No clock of a replica counts.
//
// In return the master has to answer: while it does not, nobody can tell what is the newest.
//
// A replica that does not answer, or that is behind again and again, rests for a while. A
// caller that gets no reply asks the master.
package replicas

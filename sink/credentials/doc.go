// Package credentials tells NATS and Redis who connects: by a user and a password, by an
// nkey, by a credentials file or by a client certificate.
//
// Every secret is in a file. A connection reads its files anew each time that it connects,
// so a file with new content takes effect without a restart. The exception is another nkey:
// its public part belongs to the options of a connection. No error of this package has the
// content of a file in it.
package credentials

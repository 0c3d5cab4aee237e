package kafka

import (
	"errors"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
)

// Terminal errors that a caller tells apart with errors.Is. Any other error of Publisher.Err wants a person. Terminal
// tells them from those that pass.
var (
	// ErrFenced: another publisher was opened under the same transactional id. This one must not go on; what it had not
	// yet heard of may be in the topic or not, and the other one has looked.
	ErrFenced = errors.New("fenced by another publisher with the same transactional id")

	// ErrRestart: whether the last batches are in the topic can no longer be told by sending them again. Close, Open
	// anew, and go on from the tails: that is safe at any time.
	ErrRestart = errors.New("the publisher must be opened anew")

	// ErrTooLarge: a record is larger than what its topic takes. It was not published, and nothing after it is.
	ErrTooLarge = errors.New("record larger than the topic allows")

	// ErrTopicReplaced: what was acknowledged in a partition is not there any more. Somebody has deleted the topic and made
	// it again, or a broker that did not have it was elected. What was acknowledged since the last batch that a consumer
	// has read is lost, and nobody here knows how much that is.
	ErrTopicReplaced = errors.New("acknowledged records are gone")

	// ErrClosed: Close was called.
	ErrClosed = errors.New("publisher closed")
)

// A MissingTopicError says that a topic is not there, or that the login may not see it: Kafka does not tell which.
type MissingTopicError struct{ Topic string }

func (e *MissingTopicError) Error() string {
	return fmt.Sprintf("topic %q does not exist, or this login may not describe it", e.Topic)
}

// An OffsetError says that the offset asked for is not in the partition: retention has deleted it, or it was never there.
type OffsetError struct {
	Topic     string
	Partition int32
	Offset    int64 // asked for
	Offsets         // what there is
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("offset %d of %s/%d is not between the first, %d, and the end, %d",
		e.Offset, e.Topic, e.Partition, e.First, e.End)
}

// A BrokerError is a broker's refusal, by the number that Kafka's protocol gives it. It stands for kafka-go's error, which
// says of itself that it is a net.Error: whoever asks for that takes "fenced" and "not authorised" for a broken connection.
type BrokerError struct {
	Code int
	text string
}

func (e *BrokerError) Error() string { return e.text }

// As lets this package grade the error by its code. It does not lead to a net.Error.
func (e *BrokerError) As(target any) bool {
	code, ok := target.(*kafkago.Error)
	if ok {
		*code = kafkago.Error(e.Code)
	}
	return ok
}

// own stands for err outside of this package.
func own(err error) error {
	var already *BrokerError
	var code kafkago.Error
	if errors.As(err, &already) || !errors.As(err, &code) {
		return err
	}
	return &BrokerError{Code: int(code), text: err.Error()}
}

// Terminal tells whether err is a refusal of this package's, or of a broker's, that opening another publisher would not
// mend, or must not: a fenced publisher that comes back fences the one that fenced it. It is false for ErrRestart and for
// a context that has ended.
func Terminal(err error) bool {
	for _, end := range []error{ErrFenced, ErrTooLarge, ErrTopicReplaced, ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	if errors.Is(err, ErrRestart) {
		return false
	}
	var broker *BrokerError
	var retention *RetentionError
	var missing *MissingTopicError
	var offset *OffsetError
	return errors.As(err, &broker) || errors.As(err, &retention) || errors.As(err, &missing) || errors.As(err, &offset)
}

// grade says what to do about the outcome of a request.
type grade int

const (
	gradeDone    grade = iota // it is in the topic
	gradeRetry                // send the same bytes again
	gradeFenced               // somebody else has taken over
	gradeRestart              // the broker's memory and ours differ: new epoch, fence, tails
	gradeLarge                // the broker will not take a batch of this size
	gradeStop                 // a person must look
)

// gradeOf decides from the broker's error code; whatever has no code (a refused or broken connection, a timeout, no
// leader known yet) is worth another try.
func gradeOf(err error) grade {
	if err == nil {
		return gradeDone
	}
	var missing *MissingTopicError
	var offset *OffsetError
	if errors.As(err, &missing) || errors.As(err, &offset) {
		return gradeStop
	}
	var code kafkago.Error
	if !errors.As(err, &code) {
		return gradeRetry
	}
	switch code {
	case kafkago.DuplicateSequenceNumber:
		return gradeDone
	case kafkago.InvalidProducerEpoch, kafkago.ProducerFenced:
		return gradeFenced
	case kafkago.OutOfOrderSequenceNumber, kafkago.UnknownProducerId, kafkago.InvalidProducerIDMapping:
		return gradeRestart
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge:
		return gradeLarge
	case kafkago.Unknown, kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.ConcurrentTransactions,
		kafkago.TransactionCoordinatorFenced, kafkago.SASLAuthenticationFailed:
		// A broker that goes down in the midst of a login looks like a wrong password.
		return gradeRetry
	}
	if code.Temporary() {
		return gradeRetry
	}
	return gradeStop
}

// advice names the fix for errors that a person must mend.
func advice(err error) string {
	var code kafkago.Error
	if !errors.As(err, &code) {
		return ""
	}
	switch code {
	case kafkago.TopicAuthorizationFailed:
		return ": grant this login WRITE, READ and DESCRIBE on the topic"
	case kafkago.TransactionalIDAuthorizationFailed:
		return ": grant this login WRITE and DESCRIBE on the transactional id"
	case kafkago.ClusterAuthorizationFailed:
		return ": grant this login CREATE on the topic, or IDEMPOTENT_WRITE on the cluster for brokers before 3.0"
	case kafkago.InvalidReplicationFactor:
		return ": there are fewer brokers than replicas asked for"
	case kafkago.InvalidTimestamp:
		return ": the database's clock is ahead of the broker's by more than message.timestamp.after.max.ms, or " +
			"records are older than message.timestamp.before.max.ms"
	case kafkago.InvalidRecord:
		return ": a compacted topic takes no records without key"
	}
	return ""
}

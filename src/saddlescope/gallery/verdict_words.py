"""Words of verdicts and kinds of claims with their meanings, shown beside each word and listed on the index."""

from collections.abc import Mapping

from saddlescope.reproduction import Kind, Outcome

MEANINGS: Mapping[str, str] = {
    Outcome.HOLDS: "A printed statement: the measured value is inside the paper's bound by more than its uncertainty.",
    Outcome.FAILS: "The value is outside the paper's bound by more than its uncertainty: the statement is false as "
    "printed, and the paper's page has a counterexample.",
    Outcome.AGREES: "A reading: the value is inside the bound that this project put to the paper's words.",
    Outcome.DIFFERS: "A reading: the value is outside the bound that this project put to the paper's words. It refutes "
    "nothing.",
    Outcome.SEEN: "A stand-in or an extension: the value is inside its bounds.",
    Outcome.NOT_SEEN: "A stand-in or an extension: the value is outside its bounds. It refutes nothing.",
    Outcome.UNDECIDED: "The uncertainty reaches across the bound, or the run did not resolve the quantity.",
    Outcome.NOT_TESTED: "What the claim requires is not met. This is no verdict.",
    Kind.PRINTED: "The paper's own sentence and bound, in the setting that it assumes.",
    Kind.READING: "The paper's words with a number that this project put to them; it refutes nothing.",
    Kind.STAND_IN: "The paper's statement on smaller data or networks; it refutes nothing.",
    Kind.EXTENSION: "A question beyond the paper that a reader of it would ask.",
}

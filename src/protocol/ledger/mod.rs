//! What delivery does: numbers, sessions, histories.
